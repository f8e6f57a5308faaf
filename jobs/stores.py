"""Where files are: the file systems of paths and URIs."""

from pyarrow import fs


def filesystem_of(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URI or an absolute local path, and the path in it."""
    if "://" not in uri:
        return fs.LocalFileSystem(), uri
    # Hadoop's name of S3 is s3a; pyarrow knows the store as s3
    filesystem, path = fs.FileSystem.from_uri("s3://" + uri[len("s3a://") :] if uri.startswith("s3a://") else uri)
    return filesystem, path


def delete_folder(folder: str) -> None:
    """Delete a folder or URI and all in it, if it is there."""
    filesystem, path = filesystem_of(folder)
    if filesystem.get_file_info(path).type == fs.FileType.Directory:
        filesystem.delete_dir(path)


def delete_file(path: str) -> None:
    """Delete a file or what a URI names, if it is there."""
    filesystem, path = filesystem_of(path)
    if filesystem.get_file_info(path).type == fs.FileType.File:
        filesystem.delete_file(path)


def spark_uri(path: str) -> str:
    """A path as Hadoop takes it: local ones as escaped file URIs, since `:`, `%` or a space would mean something."""
    if "://" in path:
        return path
    # one slash, as Hadoop writes it itself: Delta compares the texts
    return "file:" + path
