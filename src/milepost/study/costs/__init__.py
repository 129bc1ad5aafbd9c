"""What an encoding costs: counted from its equations, and measured beside RoPE."""
