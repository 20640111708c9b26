"""Batch files for tests: rows that are right but for what a test changes, and workbooks written by hand."""

import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

SAMPLES = Path(__file__).parent / "samples"
MTN = "MTNMOBILEMONEYPAYOUTUG_MTNMOBILEMONEYPAYOUTUG"
HEADER = ["request_id", "kind", "amount", "currency", "name", "phone_number", "email_address", "product_id"]
HEADER += ["product_item_id", "account_number", "bank_code", "customer_reference", "area", "message", "metadata"]
KINDS = {
    "mobile_money": {"product_item_id": MTN},
    "bank_transfer": {
        "product_item_id": "BANKTRANSFERUG_BANKTRANSFERUG",
        "account_number": "0011195000016",
        "bank_code": "BANK01",
    },
    "airtime": {"product_id": "MTNAIRTIMEUG", "product_item_id": "MTNAIRTIMEUG_MTNAIRTIMEUG"},
    "internet": {
        "product_id": "AIRTELDATABUNDLESUG",
        "product_item_id": "AIRTELDATABUNDLESUG_24510766",
        "phone_number": "+256752000001",
    },
    "utility": {
        "product_id": "NWSCWATERUG",
        "product_item_id": "NWSCWATERUG_NWSCWATERUG",
        "customer_reference": "0138075001",
        "area": "Kampala",
    },
}


def row(**changes: str) -> dict[str, str]:
    """A good row, by column."""
    kind = changes.get("kind", "mobile_money")
    good = {"request_id": "RUN-1", "kind": kind, "amount": "150000", "currency": "UGX", "name": "Amber Brightwater"}
    good |= {"phone_number": "+256772000001", "message": "Sample salary"} | KINDS.get(kind, KINDS["mobile_money"])
    return dict.fromkeys(HEADER, "") | good | changes


def csv_text(*rows: dict[str, str], delimiter: str = ",", end: str = "\n") -> str:
    """The rows as CSV with a header, every cell in quotation marks where it needs them."""
    columns = list(rows[0])
    return "".join(
        delimiter.join(_quoted(cell, delimiter) for cell in line) + end
        for line in [columns, *([cells[column] for column in columns] for cells in rows)]
    )


def write_csv(path: Path, *rows: dict[str, str]) -> Path:
    """A CSV file of these rows."""
    path.write_text(csv_text(*rows), encoding="utf-8", newline="")
    return path


def write_workbook(path: Path, rows: list[list[object]], *other_sheets: str) -> Path:
    """A workbook as small as one can be: texts stay texts, numbers are written as a spreadsheet writes them."""
    names = ["Payouts", *other_sheets]
    sheets = "".join(f'<sheet name="{n}" sheetId="{i}" r:id="r{i}"/>' for i, n in enumerate(names, 1))
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    links = "".join(
        f'<Relationship Id="r{i}" Type="{kind}/worksheet" Target="worksheets/sheet{i}.xml"/>'
        for i, _ in enumerate(names, 1)
    )
    package = "http://schemas.openxmlformats.org/package/2006/relationships"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{package}"><Relationship Id="r0" Type="{kind}/officeDocument" '
            'Target="xl/workbook.xml"/></Relationships>',
        )
        book.writestr(
            "xl/workbook.xml", f'<workbook xmlns="{main}" xmlns:r="{kind}"><sheets>{sheets}</sheets></workbook>'
        )
        book.writestr("xl/_rels/workbook.xml.rels", f'<Relationships xmlns="{package}">{links}</Relationships>')
        for number, _ in enumerate(names, 1):
            body = "".join(_sheet_row(i, cells) for i, cells in enumerate(rows, 1)) if number == 1 else ""
            book.writestr(
                f"xl/worksheets/sheet{number}.xml",
                f'<worksheet xmlns="{main}"><sheetData>{body}</sheetData></worksheet>',
            )
    return path


def edit_workbook(path: Path, part: str, old: str, new: str) -> Path:
    """Change the text of one part of a workbook, as a spreadsheet would have written it."""
    with zipfile.ZipFile(path) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    assert old.encode() in parts[part]
    parts[part] = parts[part].replace(old.encode(), new.encode(), 1)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        for name, content in parts.items():
            book.writestr(name, content)
    return path


def _sheet_row(number: int, cells: list[object]) -> str:
    inside = "".join(_sheet_cell(f"{chr(65 + i)}{number}", cell) for i, cell in enumerate(cells) if cell != "")
    return f'<row r="{number}">{inside}</row>'


def _sheet_cell(place: str, cell: object) -> str:
    if isinstance(cell, str):
        return f'<c r="{place}" t="inlineStr"><is><t>{escape(cell)}</t></is></c>'
    return f'<c r="{place}"><v>{cell!r}</v></c>'


def _quoted(cell: str, delimiter: str) -> str:
    if any(sign in cell for sign in (delimiter, '"', "\n", "\r")):
        return '"' + cell.replace('"', '""') + '"'
    return cell
