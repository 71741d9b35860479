"""Network load balancers of AWS as members."""
