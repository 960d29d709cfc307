"""Three ways to pretrain on one text, and what each is worth to a task with few labels."""
