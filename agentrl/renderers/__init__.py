"""Messages to token ids and back. Sampled ids are the record: they are never encoded again."""
