"""The command line: `echelons` runs trees, answers them, and shows what they did."""
