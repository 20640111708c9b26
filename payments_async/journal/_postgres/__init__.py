"""What is PostgreSQL's alone: connecting, tables in a namespace, identity, and what its errors mean."""
