"""Where a trainer's memory comes from: a pretend card, or the host within RLIMIT_AS, where
allocations are real ones."""
import pretend_card
import texts


class OnCard:
    """Like a caching allocator: what a step took, the next step has."""

    def __init__(self, text, device):
        self.error = texts.CARD[text]
        self.card = pretend_card.Card(device)
        self.cached = 0

    def allocate(self, amount):
        try:
            self.card.allocate(amount)
        except pretend_card.NoRoom as room:
            raise self.error(room) from None

    def hold(self, amount):
        self.allocate(amount)

    def forward(self, layers):
        """Activations of a step, a layer at a time."""
        needed = 0
        for layer in layers:
            needed += layer
            if needed > self.cached:
                self.allocate(needed - self.cached)
                self.cached = needed


class OnHost:
    def __init__(self, text):
        self.error = texts.HOST[text]
        self.held = []

    def allocate(self, amount):
        try:
            return bytearray(amount)
        except MemoryError:
            error = self.error(amount)
            if error is None:
                raise
        raise error

    def hold(self, amount):
        self.held.append(self.allocate(amount))

    def forward(self, layers):
        activations = [self.allocate(layer) for layer in layers]
        del activations


def open_memory(nature, device=0):
    if nature.memory == "card":
        return OnCard(nature.text, device)
    return OnHost(nature.text)
