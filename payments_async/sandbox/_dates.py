"""The shapes of timestamps, both ways. Knows one zone: UTC."""

from datetime import UTC, date, datetime, timedelta

from ._quirks import DateShape


def written(instant: datetime, shape: DateShape) -> str:
    """Write an instant in one of the documented shapes, to the second."""
    match shape:
        case "us":  # Spec: "`M/D/YYYY h:mm:ss AM|PM`"
            half = "AM" if instant.hour < 12 else "PM"
            return f"{instant.month}/{instant.day}/{instant.year} {instant.hour % 12 or 12}:{instant:%M:%S} {half}"
        case "spaced":  # Spec: "Shaped `YYYY-MM-DD HH:mm:ss`"
            return f"{instant:%Y-%m-%d %H:%M:%S}"
        case "iso":  # Spec: "datetime in the other"
            return f"{instant:%Y-%m-%dT%H:%M:%SZ}"


def boundary(text: str, *, after_the_day: bool) -> datetime:
    """Read a date or a timestamp of a query.

    Args:
        after_the_day: Whether a date without a time means the end of that day.

    Raises:
        ValueError: It is neither.
    """
    if len(text) == len("YYYY-MM-DD"):
        day = date.fromisoformat(text)
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        return midnight + timedelta(days=1) if after_the_day else midnight
    instant = datetime.fromisoformat(text)
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
