"""What a Java client's .properties file says, in the parts it is made of; `jobs.sources.client_properties` puts them
together."""
