"""Ready callbacks that call `trainwarden.beat`: one module per framework, which it imports."""
