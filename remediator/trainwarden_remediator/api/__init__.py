"""The HTTP interface: webhook, holds, reports and pages."""
