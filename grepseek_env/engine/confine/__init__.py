"""What the operating system is asked to keep programs from: Landlock, seccomp, privileges, and who applies them."""
