"""The tunnel and the gateway, beside remotedialer as Rancher has it."""
