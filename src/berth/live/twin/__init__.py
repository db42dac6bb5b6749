"""The twin: streams of gangs on a modelled cluster, with the dispatcher and drivers of the service, in virtual time."""
