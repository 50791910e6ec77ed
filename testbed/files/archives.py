"""Archives that somebody else has made: nothing in them is read at a size that they choose."""

import tarfile

from testbed.files import limits

_OF_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class SmallHeaders(tarfile.TarInfo):
    """A member of a tar whose extended headers are small: `tarfile` reads these into memory, whatever their size."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:  # to be overridden, as `tarfile` says
        if self.type in _OF_HEADERS and self.size > limits.ARCHIVE_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of more than {limits.size(limits.ARCHIVE_HEADER_BYTES)}")
        member: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]  # private, so not in the stubs
        return member
