"""The parts of a Java client's .properties file; `jobs.sources.client_properties` combines them."""
