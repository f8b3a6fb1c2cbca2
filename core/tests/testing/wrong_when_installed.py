"""A plugin that is wrong by what its import does. `trial` installs it, so that the kit finds it as it finds others."""

from right_allocators import Plain

import allotment

DEVICES = allotment.get_devices()


class ChoosesAPlatformAtImport(Plain):
    """Asks for the devices when it is imported, which chooses a platform for the whole process."""
