"""FedEPM on Adult in Flower."""
