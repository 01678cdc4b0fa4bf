"""An algorithm's two sides without a framework: a server, its clients, and the aggregation between."""
