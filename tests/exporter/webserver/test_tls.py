from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.config_file.loader import parse
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.webserver.tls import build_context, certificate_warning, subject_names
from trainwarden_exporter.webserver.web_config import WebConfig

if TYPE_CHECKING:
    from tests.exporter.conftest import Authority, Pair

Lines = tuple[str, ...]
Load = Callable[..., WebConfig]
Complain = Callable[..., str]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def read(*lines: str) -> WebConfig:
        text = "tls_server_config:\n" + "".join(f"  {line}\n" for line in lines)
        return parse(text, tmp_path / "web.yml", WebConfig)

    return read


@pytest.fixture
def complaint(load: Load) -> Complain:
    def read(*lines: str) -> str:
        with pytest.raises(ConfigError) as caught:
            load(*lines)
        (problem,) = caught.value.problems
        return f"{problem.line}: {problem.where.removeprefix('tls_server_config.')}: " + (
            problem.message
        )

    return read


@pytest.fixture
def files(server_pair: Pair) -> Lines:
    return f"cert_file: {server_pair.cert_file}", f"key_file: {server_pair.key_file}"


def inline(name: str, pem: str) -> str:
    return f"{name}: |\n" + "".join(f"    {line}\n" for line in pem.splitlines())


def handshake(config: WebConfig, client: ssl.SSLContext) -> ssl.SSLObject:
    """The client's side after a handshake in memory."""
    assert config.tls is not None
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(down, up, server_hostname="localhost")
    theirs = build_context(config.tls).wrap_bio(up, down, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ours


@pytest.fixture
def client(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.cert)


def test_certificate_and_key_from_files_make_a_server(
    load: Load, files: Lines, client: ssl.SSLContext
) -> None:
    assert handshake(load(*files), client).version() == "TLSv1.3"


def test_certificate_and_key_may_stand_in_the_file_itself(
    load: Load, server_pair: Pair, client: ssl.SSLContext
) -> None:
    config = load(inline("cert", server_pair.cert), inline("key", server_pair.key))
    assert handshake(config, client).version() == "TLSv1.3"
    assert server_pair.key not in repr(config)
    assert config.tls is not None
    assert "PRIVATE KEY" not in repr(config)


class TestCertificateAndKey:
    def test_a_missing_key_is_named(self, complaint: Complain, files: Lines) -> None:
        assert complaint(files[0]) == "1: key_file: missing: TLS needs key or key_file"

    def test_a_missing_certificate_is_named(self, complaint: Complain, files: Lines) -> None:
        assert complaint('cert_file: ""', files[1]) == (
            "2: cert_file: missing: TLS needs cert or cert_file"
        )

    def test_settings_without_a_certificate_do_not_fall_back_to_plain_http(
        self, complaint: Complain
    ) -> None:
        assert "missing: TLS needs cert" in complaint("min_version: TLS13")

    def test_a_file_that_cannot_be_read_is_named_with_its_line(
        self, complaint: Complain, files: Lines, tmp_path: Path
    ) -> None:
        assert complaint(files[0], "key_file: absent.key") == (
            f"3: key_file: cannot read {tmp_path}/absent.key: No such file or directory"
        )

    def test_a_path_must_be_text(self, complaint: Complain, files: Lines) -> None:
        assert complaint(files[0], "key_file: [a]") == "3: key_file: not a path"

    def test_a_key_of_another_certificate_is_found(
        self, complaint: Complain, files: Lines, renewed_pair: Pair
    ) -> None:
        assert complaint(files[0], f"key_file: {renewed_pair.key_file}") == (
            "3: key_file: does not belong to the certificate"
        )

    def test_rubbish_for_a_certificate_is_found(
        self, complaint: Complain, files: Lines, tmp_path: Path
    ) -> None:
        (tmp_path / "bad.crt").write_text("rubbish — of any kind")
        reported = complaint("cert_file: bad.crt", files[1])
        assert reported.startswith("2: cert_file: no PEM certificate in it: ")

    def test_rubbish_for_a_key_is_found(
        self, complaint: Complain, files: Lines, tmp_path: Path
    ) -> None:
        (tmp_path / "bad.key").write_text("rubbish")
        reported = complaint(files[0], "key_file: bad.key")
        assert reported.startswith("3: key_file: certificate and key cannot be used: ")

    def test_an_encrypted_key_is_refused_instead_of_asked_for(
        self, complaint: Complain, files: Lines, tmp_path: Path
    ) -> None:
        (tmp_path / "locked.key").write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
        assert "3: key_file: the key is encrypted" in complaint(files[0], "key_file: locked.key")

    def test_a_value_given_twice_is_an_error(
        self, complaint: Complain, files: Lines, server_pair: Pair
    ) -> None:
        assert "key_file: given twice: as key and as key_file" in complaint(
            *files, inline("key", server_pair.key)
        )

    def test_an_expired_certificate_is_doubted_but_served(
        self, load: Load, expired_pair: Pair
    ) -> None:
        config = load(f"cert_file: {expired_pair.cert_file}", f"key_file: {expired_pair.key_file}")
        assert config.tls is not None
        assert (
            certificate_warning(build_context(config.tls), config.tls) == "certificate has expired"
        )

    def test_a_good_certificate_is_not_doubted(self, load: Load, files: Lines) -> None:
        config = load(*files)
        assert config.tls is not None
        assert certificate_warning(build_context(config.tls), config.tls) is None

    def test_equal_bytes_are_equal_settings_whatever_the_file(
        self, load: Load, files: Lines, server_pair: Pair, tmp_path: Path
    ) -> None:
        (tmp_path / "copy.crt").write_text(server_pair.cert)
        assert load(*files) == load("cert_file: copy.crt", files[1])


class TestVersions:
    def test_a_client_below_the_minimum_is_turned_away(
        self, load: Load, files: Lines, client: ssl.SSLContext
    ) -> None:
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError, match=r"unsupported protocol"):
            handshake(load(*files, "min_version: TLS13"), client)

    def test_the_maximum_is_kept(self, load: Load, files: Lines, client: ssl.SSLContext) -> None:
        assert handshake(load(*files, "max_version: TLS12"), client).version() == "TLSv1.2"

    @pytest.mark.parametrize("version", ["TLS10", "TLS11"])
    def test_what_openssl_refuses_is_reported_as_unsupported(
        self, complaint: Complain, files: Lines, version: str
    ) -> None:
        assert complaint(*files, f"min_version: {version}") == (
            f"4: min_version: {version} is not supported by OpenSSL: write TLS12 or TLS13"
        )

    def test_an_unknown_version_is_refused(self, complaint: Complain, files: Lines) -> None:
        for version in ("TLS111", "[TLS12]"):
            reported = complaint(*files, f"min_version: {version}")
            assert reported.startswith("4: min_version: ")
            assert reported.endswith("'TLS12' or 'TLS13'")

    def test_a_maximum_below_the_minimum_is_refused(
        self, complaint: Complain, files: Lines
    ) -> None:
        reported = complaint(*files, "min_version: TLS13", "max_version: TLS12")
        assert reported == "5: max_version: lower than min_version"


class TestCiphersAndCurves:
    def test_go_names_choose_the_suite(
        self, load: Load, files: Lines, client: ssl.SSLContext
    ) -> None:
        suites = "cipher_suites: [TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256]"
        chosen = handshake(load(*files, "max_version: TLS12", suites), client).cipher()
        assert chosen is not None
        assert chosen[0] == "ECDHE-ECDSA-CHACHA20-POLY1305"

    @pytest.mark.parametrize(
        ("server_first", "suite"),
        [("true", "ECDHE-ECDSA-AES256-GCM-SHA384"), ("false", "ECDHE-ECDSA-AES128-GCM-SHA256")],
    )
    def test_the_order_is_the_servers_unless_configured_otherwise(
        self, load: Load, files: Lines, client: ssl.SSLContext, server_first: str, suite: str
    ) -> None:
        client.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384")
        suites = (
            "cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,"
            " TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]"
        )
        order = f"prefer_server_cipher_suites: {server_first}"
        chosen = handshake(load(*files, "max_version: TLS12", suites, order), client).cipher()
        assert chosen is not None
        assert chosen[0] == suite

    def test_suites_of_tls_13_alone_leave_tls_12_out(
        self, load: Load, files: Lines, client: ssl.SSLContext
    ) -> None:
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError, match=r"unsupported protocol"):
            handshake(load(*files, "cipher_suites: [TLS_AES_128_GCM_SHA256]"), client)

    def test_suites_of_tls_13_alone_cannot_serve_tls_12(
        self, complaint: Complain, files: Lines
    ) -> None:
        suites = "cipher_suites: [TLS_AES_128_GCM_SHA256]"
        assert "no suite of TLS 1.2" in complaint(*files, "max_version: TLS12", suites)

    def test_suites_that_do_not_fit_the_key_are_found_at_load(
        self, complaint: Complain, files: Lines
    ) -> None:
        suites = "cipher_suites: [TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]"
        assert complaint(*files, "max_version: TLS12", suites) == (
            "5: cipher_suites: no handshake can succeed with these settings: no shared cipher"
        )

    def test_an_invented_suite_is_refused(self, complaint: Complain, files: Lines) -> None:
        reported = complaint(*files, "cipher_suites:", "- TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA2048")
        assert reported.startswith("5: cipher_suites[0]: unknown cipher suite: one of TLS_AES_128")

    def test_the_one_curve_named_is_the_only_one_offered(
        self, load: Load, files: Lines, client: ssl.SSLContext
    ) -> None:
        config = load(*files, "curve_preferences: [CurveP521]")
        assert handshake(config, client).version() == "TLSv1.3"
        client.set_ecdh_curve("prime256v1")
        with pytest.raises(ssl.SSLError):
            handshake(config, client)

    def test_several_curves_are_reported_as_unsupported(
        self, complaint: Complain, files: Lines
    ) -> None:
        reported = complaint(*files, "curve_preferences: [CurveP256, X25519]")
        assert reported.startswith("4: curve_preferences: several curves are not supported")

    def test_a_curve_that_ssl_cannot_set_is_reported(
        self, complaint: Complain, files: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise ssl.SSLError("unknown group")

        monkeypatch.setattr(ssl.SSLContext, "set_ecdh_curve", refuse)
        reported = complaint(*files, "curve_preferences: [X25519]")
        assert reported.startswith("4: curve_preferences: Python's ssl cannot set X25519 here")

    def test_an_invented_curve_is_refused(self, complaint: Complain, files: Lines) -> None:
        assert "unknown curve" in complaint(*files, "curve_preferences: [CurveP257]")


class TestClientPolicy:
    @pytest.mark.parametrize(
        "policy", ["RequestClientCert", "RequireAnyClientCert", "RequireClientCert"]
    )
    def test_unverified_certificates_are_reported_as_unsupported(
        self, complaint: Complain, files: Lines, policy: str
    ) -> None:
        reported = complaint(*files, f"client_auth_type: {policy}")
        assert reported.startswith(f"4: client_auth_type: {policy} is not supported")
        assert "RequireAndVerifyClientCert" in reported

    def test_an_unknown_policy_is_refused(self, complaint: Complain, files: Lines) -> None:
        reported = complaint(*files, "client_auth_type: x")
        assert reported.startswith("4: client_auth_type: ")
        assert "'VerifyClientCertIfGiven' or 'RequireAndVerifyClientCert'" in reported

    def test_a_required_certificate_needs_an_authority(
        self, complaint: Complain, files: Lines
    ) -> None:
        assert complaint(*files, "client_auth_type: RequireAndVerifyClientCert") == (
            "1: client_ca_file: missing: "
            "RequireAndVerifyClientCert needs client_ca or client_ca_file"
        )

    def test_an_optional_certificate_is_verified_by_the_system_where_no_authority_is_named(
        self, load: Load, files: Lines
    ) -> None:
        config = load(*files, "client_auth_type: VerifyClientCertIfGiven")
        assert config.tls is not None
        assert build_context(config.tls).verify_mode is ssl.CERT_OPTIONAL

    def test_an_authority_needs_a_policy(
        self, complaint: Complain, files: Lines, authority: Authority
    ) -> None:
        assert complaint(*files, f"client_ca_file: {authority.cert_file}") == (
            "4: client_ca_file: client_auth_type requests no certificates"
        )

    def test_allowed_names_need_a_policy(self, complaint: Complain, files: Lines) -> None:
        assert complaint(*files, "client_allowed_sans: [a]") == (
            "4: client_allowed_sans: client_auth_type requests no certificates"
        )

    def test_an_authority_without_certificates_is_found(
        self, complaint: Complain, files: Lines
    ) -> None:
        reported = complaint(
            *files, "client_auth_type: VerifyClientCertIfGiven", "client_ca_file: /dev/null"
        )
        assert reported.startswith("5: client_ca_file: no PEM certificate in it: ")

    def test_an_authority_may_stand_in_the_file_itself(
        self, load: Load, files: Lines, authority: Authority
    ) -> None:
        config = load(
            *files, "client_auth_type: VerifyClientCertIfGiven", inline("client_ca", authority.cert)
        )
        assert config.tls is not None
        assert build_context(config.tls).verify_mode is ssl.CERT_OPTIONAL
        assert not config.tls.demands_certificate


def test_names_of_a_certificate_are_written_as_in_a_list_of_allowed_ones() -> None:
    certificate = {
        "subjectAltName": (
            ("DNS", "prometheus.example"),
            ("IP Address", "0:0:0:0:0:0:0:1"),
            ("email", "ops@example.org"),
            ("URI", "spiffe://example.org/p"),
            ("DirName", ((("commonName", "x"),),)),
        )
    }
    assert subject_names(certificate) == {
        "prometheus.example",
        "::1",
        "ops@example.org",
        "spiffe://example.org/p",
    }
    assert subject_names({}) == frozenset()
