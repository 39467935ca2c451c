// packages: libsodium-dev
// archives: libsodium.a
#include <sodium.h>
#include <stdio.h>
#include <string.h>

static void show(const char *what, const unsigned char *bytes, size_t count) {
    char text[200];
    printf("%s %s\n", what, sodium_bin2hex(text, sizeof text, bytes, count));
}

int main(void) {
    unsigned char hash[32], key[32], nonce[24] = "nonce", box[80], again[64], public[32], secret[64], signature[64];
    unsigned char seed[32] = "a seed of thirty-two bytes, fixed";
    const unsigned char text[] = "clay tablets keep better than paper";
    printf("init %d\n", sodium_init());
    crypto_generichash(hash, sizeof hash, text, sizeof text, NULL, 0);
    show("blake2b", hash, sizeof hash);
    printf("argon2 %d\n", crypto_pwhash(key, sizeof key, "Inanna", 6, seed, 2, 1 << 20, crypto_pwhash_ALG_ARGON2ID13));
    show("key", key, sizeof key);
    crypto_aead_xchacha20poly1305_ietf_encrypt(box, NULL, text, sizeof text, NULL, 0, NULL, nonce, key);
    show("box", box, sizeof text + 16);
    printf("open %d", crypto_aead_xchacha20poly1305_ietf_decrypt(again, NULL, NULL, box, sizeof text + 16, NULL, 0, nonce, key));
    box[3] ^= 1;
    printf(" %d\n", crypto_aead_xchacha20poly1305_ietf_decrypt(again, NULL, NULL, box, sizeof text + 16, NULL, 0, nonce, key));
    crypto_sign_seed_keypair(public, secret, seed);
    crypto_sign_detached(signature, NULL, text, sizeof text, secret);
    show("signature", signature, sizeof signature);
    printf("verify %d\n", crypto_sign_verify_detached(signature, text, sizeof text, public));
    return 0;
}
