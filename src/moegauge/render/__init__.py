"""From records to what people look at. Units are chosen here and only here."""
