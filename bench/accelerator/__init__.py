"""`seedbed bench accelerator`: what the first hour on a machine with an accelerator should tell."""
