"""An algorithm's two sides without a framework: server, clients, and the aggregation between."""
