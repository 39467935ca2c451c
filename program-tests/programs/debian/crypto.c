// packages: libssl-dev
// archives: libcrypto.a
#include <openssl/err.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

static void show(const char *what, const unsigned char *bytes, unsigned count) {
    printf("%s ", what);
    for (unsigned i = 0; i < count; i++) printf("%02x", bytes[i]);
    puts("");
}

int main(void) {
    unsigned char text[1000], digest[64], packed[1100], key[32] = "0123456789abcdef0123456789abcde", iv[16] = "fedcba987654321";
    unsigned size = 0;
    int some = 0, more = 0;
    memset(text, 'u', sizeof text);
    const char *digests[] = {"SHA256", "SHA512", "SHA3-256", "BLAKE2s256", "SHA1"};
    for (int i = 0; i < 5; i++)
        if (EVP_Digest(text, sizeof text, digest, &size, EVP_get_digestbyname(digests[i]), NULL)) show(digests[i], digest, size);
    const EVP_CIPHER *ciphers[] = {EVP_aes_256_cbc(), EVP_aes_256_ctr(), EVP_chacha20()};
    for (int i = 0; i < 3; i++) {
        EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
        EVP_EncryptInit_ex(context, ciphers[i], NULL, key, iv);
        EVP_EncryptUpdate(context, packed, &some, text, sizeof text);
        EVP_EncryptFinal_ex(context, packed + some, &more);
        EVP_CIPHER_CTX_free(context);
        printf("%d: ", some + more);
        show("cipher", packed + 500, 16);
    }
    EVP_PKEY *pair = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    EVP_MD_CTX *signing = EVP_MD_CTX_new();
    unsigned char signature[64];
    size_t signature_size = sizeof signature;
    EVP_DigestSignInit(signing, NULL, NULL, NULL, pair);
    printf("sign %d\n", EVP_DigestSign(signing, signature, &signature_size, text, sizeof text));
    EVP_MD_CTX_reset(signing);
    EVP_DigestVerifyInit(signing, NULL, NULL, NULL, pair);
    printf("verify %d\n", EVP_DigestVerify(signing, signature, signature_size, text, sizeof text));
    text[3]++;
    EVP_MD_CTX_reset(signing);
    EVP_DigestVerifyInit(signing, NULL, NULL, NULL, pair);
    printf("verify another %d\n", EVP_DigestVerify(signing, signature, signature_size, text, sizeof text));
    EVP_MD_CTX_free(signing);
    EVP_PKEY_free(pair);
    return 0;
}
