"""Several libraries in one process, drawing from one allocator through their bridges."""
