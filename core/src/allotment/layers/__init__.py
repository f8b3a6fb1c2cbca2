"""What every allocator gets from core, bound around it when it is selected."""
