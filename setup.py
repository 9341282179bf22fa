import setuptools
from setuptools.command import build_py


class BuildProduct(build_py.build_py):
    """Builds the packages without the tests; pbr takes all packages in."""

    def run(self):
        """Leave the tests out of what is built."""
        self.packages = [
            name
            for name in self.packages
            if not f'{name}.'.startswith('nova_vhpc.tests.')
        ]
        super().run()

    def exclude_data_files(self, package, src_dir, files):
        """Return the data files of a package, but for those of the tests."""
        found = super().exclude_data_files(package, src_dir, files)
        return [file for file in found if 'nova_vhpc/tests/' not in file]


class Distribution(setuptools.Distribution):
    """Has its own command, where pbr replaces ``cmdclass``."""

    def get_command_class(self, command):
        """Return the class of a command."""
        if command == 'build_py':
            return BuildProduct
        return super().get_command_class(command)


setuptools.setup(
    distclass=Distribution, setup_requires=['pbr>=6.1.1'], pbr=True
)
