"""Observers, good and bad."""


class Counting:
    def __init__(self):
        self.seen = []

    def allotment_after_allocate(self, ptr, nbytes):
        self.seen.append((ptr, nbytes))


ready_made = Counting()


class Misspelt:
    def allotment_after_alocate(self, ptr):
        pass


class Failing:
    def __init__(self):
        raise RuntimeError("cannot be made")
