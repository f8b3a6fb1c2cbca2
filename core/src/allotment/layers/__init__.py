"""What is wrapped around every allocator: the accounts always, and layers where they are asked for."""
