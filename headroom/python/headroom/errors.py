"""The exceptions that Headroom raises on purpose. "It does not fit" is an answer, never an exception."""


class Error(RuntimeError):
    """The base class: catch this to catch every exception that Headroom raises on purpose."""


class UsageError(Error, ValueError):
    """The caller asked for something that does not exist or cannot be parsed: a bad size, option, name."""


class InputError(Error, ValueError):
    """A file (or other input) does not have the expected content."""


class UnavailableError(Error):
    """The machine lacks a requirement: no driver, no GPU, another PyTorch."""


class WriteError(Error):
    """A write failed: full disk, missing folder, no permission."""


class BusyError(Error, TimeoutError):
    """The resource exists but is in use, or was not available in time: try later."""
