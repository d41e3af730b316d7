"""The manual pages: prose from man/source, options and tables from the code, mdoc in man/man*."""
