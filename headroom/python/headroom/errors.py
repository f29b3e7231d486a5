"""What Headroom raises on purpose. "It does not fit" is never an exception: it is an answer."""


class Error(RuntimeError):
    """The root: catch this to catch everything that Headroom raises on purpose."""


class UsageError(Error, ValueError):
    """Asked for something that does not exist or cannot be read: a bad size, option or name."""


class InputError(Error, ValueError):
    """A file (or other input) does not hold what it should."""


class UnavailableError(Error):
    """The machine lacks what is needed: no driver, no GPU, another PyTorch."""


class WriteError(Error):
    """Something cannot be written: full disk, missing folder, no permission."""


class BusyError(Error, TimeoutError):
    """What is needed exists but is taken, or could not be had in time: try later."""
