"""What agents may spend: grants, charges, and what is left."""
