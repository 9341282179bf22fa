#!/bin/sh
# Build libvirt's modular daemons, which Debian leaves out, from the source of Debian's
# package, and install them and the libraries into /modular. To be run in a system that
# is thrown away afterwards: it installs a compiler.
set -eu

triplet=x86_64-linux-gnu
sed 's/^deb /deb-src /' /etc/apt/sources.list >/etc/apt/sources.list.d/source.list
apt-get update -qq
apt-get install -y -qq --no-install-recommends dpkg-dev gcc libc6-dev meson ninja-build \
    pkgconf gettext xsltproc libxml2-utils python3-docutils libglib2.0-dev libxml2-dev \
    libgnutls28-dev libtirpc-dev libjson-c-dev libapparmor-dev libcap-ng-dev \
    libnl-3-dev libnl-route-3-dev libnuma-dev libattr1-dev libaudit-dev libudev-dev \
    libpciaccess-dev libblkid-dev libselinux1-dev libacl1-dev libdevmapper-dev \
    libreadline-dev
mkdir /source
cd /source
# apt has verified each file that it leaves. A mirror may lack signatures, and fails.
apt-get source -qq --download-only libvirt || true
tar -xf libvirt_*.orig.tar.xz --strip-components=1
tar -xf libvirt_*.debian.tar.xz
grep -v -e '^#' -e '^$' debian/patches/series | while read -r name; do
    patch -s -p1 <"debian/patches/$name"
done
# As debian/rules has it, but for what the guests of the checks do not need, and
# for remote_default_mode, which is "direct" where daemons are modular.
meson setup build --buildtype=plain --prefix=/usr --libdir=lib/$triplet \
    --libexecdir=/usr/lib/libvirt --sysconfdir=/etc --localstatedir=/var \
    -Dauto_features=disabled -Dno_git=true -Drpath=disabled -Drunstatedir=/run \
    -Dinitconfdir=/etc/default -Dunitdir=/usr/lib/systemd/system \
    -Dsysusersdir=/usr/lib/sysusers.d -Dinit_script=systemd -Dtls_priority=NORMAL \
    -Ddriver_remote=enabled -Dremote_default_mode=direct -Ddriver_libvirtd=enabled \
    -Ddriver_qemu=enabled -Dqemu_user=libvirt-qemu -Dqemu_group=libvirt-qemu \
    -Dqemu_moddir=/usr/lib/$triplet/qemu -Dqemu_datadir=/usr/share/qemu \
    -Dapparmor=enabled -Dsecdriver_apparmor=enabled -Dapparmor_profiles=enabled \
    -Djson_c=enabled -Dcapng=enabled -Dlibnl=enabled -Dnumactl=enabled \
    -Dattr=enabled -Daudit=enabled -Dudev=enabled -Dpciaccess=enabled \
    -Dblkid=enabled -Ddocs=disabled -Dtests=disabled
ninja -C build
DESTDIR=/modular meson install -C build --no-rebuild
