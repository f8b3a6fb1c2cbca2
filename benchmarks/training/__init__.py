"""Training in PyTorch, with its memory from Allotment and from its own allocator, each in a process of its own."""
