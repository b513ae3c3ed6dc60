"""The `dtk` command: one thin module a command group; everything heavy is imported in command bodies."""
