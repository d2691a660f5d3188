"""cert-manager's part on the embedded API: Issuers and Certificates for managers of providers that expect it.

`remuda serve` runs no pods, so cert-manager itself can't be installed there, and providers of Cluster API need its certificates
for their webhooks. :mod:`.issuers` judges self-signed and CA issuers, :mod:`.certificates` keeps Secrets with signed certificates
(:mod:`.signing` makes them from :mod:`.wishes`), :mod:`.injection` writes CAs into webhooks and definitions.
Not here: ACME, Vault and other issuers, CertificateRequests. Read :mod:`.certificates` first.
"""
