import assert from 'node:assert/strict';
import { createHash, createPublicKey } from 'node:crypto';
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { wordlist } from '@scure/bip39/wordlists/english';
import { authorityWords } from '../../engine/trust/authority-words.js';
import { fromBase32, toBase32 } from '../../engine/trust/base32.js';
import { createNodeKey } from '../../shared/transport/trust/certificate.js';
import { joinTokenText, makeJoinToken, readJoinToken, secretDigest } from '../../engine/trust/join-token.js';
import { EXPORTER_BYTES, isKeyProof, proveKey } from '../../engine/trust/key-proof.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';
import { firstRoster, listPeer } from '../../engine/trust/roster-changes.js';
import type { Roster } from '../../engine/trust/roster.js';
import {
  createToken,
  EMPTY_TOKEN_BOOK,
  isClockSetBack,
  listTokens,
  parseTokenBook,
  revokeToken,
  TOKEN_LIFE_LIMIT_MS,
  TOKENS_LIMIT,
  TOKEN_USES_LIMIT,
  useToken,
  type NewToken,
  type TokenBook,
  type TokenClock,
  type TokenUse,
} from '../../engine/trust/token-book.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { RUNTIME } from '../wall.js';
import { done, refusalOf } from './refusals.js';

const DIGEST = '3f2a'.repeat(16);
const HOUR_MS = 3_600_000;
const NOW_MS = Date.UTC(2026, 10, 25, 10, 2);
const CLOCK: TokenClock = { nowMs: NOW_MS, uptimeMs: 5000, bootId: 'one', clockIsSetBack: false };

function chanceOf(seed: number): { randomInt(limit: number): number } {
  const random = new SeededRandom(seed);
  return { randomInt: (limit) => random.int(limit) };
}

describe('base 32', () => {
  it('is that of RFC 4648', () => {
    for (const [plain, coded] of [
      ['', ''],
      ['f', 'my'],
      ['fo', 'mzxq'],
      ['foo', 'mzxw6'],
      ['foob', 'mzxw6yq'],
      ['fooba', 'mzxw6ytb'],
      ['foobar', 'mzxw6ytboi'],
    ] as const) {
      assert.equal(toBase32(Buffer.from(plain)), coded);
      assert.equal(fromBase32(coded)?.toString(), plain);
    }
  });

  it('gives back any bytes, and reads each text in one way', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 80 }), (bytes) => {
        assert.deepEqual(fromBase32(toBase32(bytes)), Buffer.from(bytes));
      }),
    );
    for (const wrong of ['mz', 'my=', 'MY', 'm1', 'a', 'mzxwa']) {
      const bytes = fromBase32(wrong);
      assert.ok(bytes === null || toBase32(bytes) === wrong, wrong);
    }
    assert.equal(fromBase32('mz'), null);
  });
});

describe('the text of a join token', () => {
  const token = makeJoinToken(DIGEST, chanceOf(1));
  const text = joinTokenText(token);

  it('is read as it was made, also with capitals and space around', () => {
    assert.match(text, /^odmoe1-[a-z2-7]{52}-[a-z2-7]{8}-[a-z2-7]{26}-[a-z2-7]{4}$/);
    fc.assert(
      fc.property(fc.nat(), (seed) => {
        const made = makeJoinToken(createHash('sha256').update(String(seed)).digest('hex'), chanceOf(seed));
        assert.deepEqual(readJoinToken(` ${joinTokenText(made).toUpperCase()}\n`), made);
      }),
    );
  });

  it('is refused with any character changed or two exchanged, as mistyped', () => {
    const places = fc.integer({ min: 7, max: text.length - 1 });
    fc.assert(
      fc.property(places, fc.constantFrom(...'abcdefghijklmnopqrstuvwxyz0123456789_'), (place, character) => {
        const changed = text.slice(0, place) + character + text.slice(place + 1);
        if (changed === text) return;
        assert.match(refusalOf(readJoinToken(changed)), /the join token is (mistyped|cut short)/);
      }),
      { numRuns: 1000 },
    );
    const exchanged = text.replace(/(.)(.)(-[^-]+)$/, '$2$1$3');
    if (exchanged !== text) assert.match(refusalOf(readJoinToken(exchanged)), /is mistyped/);
  });

  it('is refused cut short, too long, of another version, and as none: each in its own words', () => {
    for (let length = 7; length < text.length; length++) {
      assert.match(refusalOf(readJoinToken(text.slice(0, length))), /is cut short \(\d+ of 100 characters\)/);
    }
    assert.equal(text.length, 100);
    assert.match(refusalOf(readJoinToken(text + text)), /is too long/);
    assert.match(refusalOf(readJoinToken(text.replace('odmoe1', 'odmoe2'))), /of another version of odmoe \(odmoe2\)/);
    for (const none of ['', 'hello', '482913', 'K10abc::server:x']) {
      assert.match(refusalOf(readJoinToken(none)), /is no join token of odmoe/);
    }
  });
});

describe('the tokens of main', () => {
  const chance = chanceOf(7);
  const wanted: NewToken = { role: 'worker', uses: 2, lifeMs: 24 * HOUR_MS };

  interface Made {
    readonly book: TokenBook;
    readonly use: TokenUse;
  }

  function made(changes: Partial<NewToken> = {}, book: TokenBook = EMPTY_TOKEN_BOOK, clock = CLOCK): Made {
    const result = done(createToken(book, { ...wanted, ...changes }, DIGEST, clock, chance));
    const { id, secret, authorityDigest } = done(readJoinToken(result.text));
    assert.equal(authorityDigest, DIGEST);
    return { book: result.book, use: { tokenId: id, secret, role: 'worker', id: 'w1', isListed: false } };
  }

  function later(byMs: number): TokenClock {
    return { ...CLOCK, nowMs: NOW_MS + byMs, uptimeMs: CLOCK.uptimeMs + byMs };
  }

  const by = (use: TokenUse, machine: string, isListed = false): TokenUse => ({ ...use, id: `w${machine}`, isListed });

  it('let in as many machines as they are for, and a machine that asks again for free', () => {
    const { book, use } = made();
    const one = done(useToken(book, use, CLOCK)).book;
    assert.equal(done(useToken(one, by(use, '1', true), CLOCK)).book, one);
    const two = done(useToken(one, by(use, '2'), CLOCK)).book;
    assert.match(refusalOf(useToken(two, by(use, '3'), CLOCK)), /is used up/);
    assert.match(refusalOf(useToken(two, by(use, '3', true), CLOCK)), /is used up/);
    assert.match(refusalOf(useToken(two, by(use, '1'), CLOCK)), /is used up/, 'it was removed since');
    done(useToken(two, by(use, '1', true), CLOCK));
    done(useToken(two, by(use, '2', true), CLOCK));
    assert.deepEqual(two.tokens[0]?.usedBy, ['w1', 'w2']);
    assert.deepEqual(
      listTokens(two, CLOCK).map(({ state, leftMs }) => [state, leftMs]),
      [['used up', 24 * HOUR_MS]],
    );
  });

  it('let in any number of machines where no number was given', () => {
    const { book, use } = made({ uses: null });
    let now = book;
    for (let machine = 0; machine < 300; machine++) {
      now = done(useToken(now, by(use, String(machine)), CLOCK)).book;
    }
    now = done(useToken(now, by(use, '100'), CLOCK)).book;
    const [token] = now.tokens;
    assert.equal(token?.usesLeft, null);
    assert.deepEqual(token.usedBy.slice(-2), ['w299', 'w100'], 'the list shows who joined last');
    assert.equal(new Set(token.usedBy).size, TOKEN_USES_LIMIT);
    assert.deepEqual(parseTokenBook(JSON.parse(JSON.stringify(now))), now);
  });

  it('have other words for each reason to refuse', () => {
    const { book, use } = made({ name: 'w1' });
    const revoked = done(revokeToken(book, use.tokenId, NOW_MS));
    const usedUp = made({ uses: 1 });
    const used = done(useToken(usedUp.book, usedUp.use, CLOCK)).book;
    const results = [
      useToken(book, { ...use, tokenId: 'aaaaaaaa' }, CLOCK),
      useToken(book, { ...use, secret: `${use.secret.slice(1)}a` }, CLOCK),
      useToken(revoked, use, CLOCK),
      useToken(book, use, later(24 * HOUR_MS + 120_000)),
      useToken(book, { ...use, role: 'shadow' }, CLOCK),
      useToken(book, { ...use, id: 'w2' }, CLOCK),
      useToken(used, by(usedUp.use, '2'), CLOCK),
      useToken(book, use, { ...CLOCK, bootId: 'two', clockIsSetBack: true }),
    ];
    const words = [
      /is not known to this main/,
      /has another secret/,
      /was revoked on main \(2026-11-25 10:02 UTC\)/,
      /expired 2 min 0 s ago, by main's clock/,
      /is for the role worker, and not for shadow/,
      /is for the machine w1, and not for w2/,
      /is used up/,
      /clock was set back, and main's host was started again/,
    ];
    for (const [index, result] of results.entries()) {
      const refusal = refusalOf(result);
      assert.deepEqual(
        words.map((pattern) => pattern.test(refusal)),
        words.map((_, other) => other === index),
        refusal,
      );
      assert.equal(refusal.includes(use.secret), false);
    }
  });

  it("call a person an operator, and say how main's operator makes him another token", () => {
    const { book, use } = made({ role: 'operator', uses: 1, name: 'anna' });
    const anna: TokenUse = { ...use, role: 'operator', id: 'anna' };
    assert.match(refusalOf(useToken(book, { ...anna, id: 'berta' }, CLOCK)), /is for the operator anna, and not/);
    const used = done(useToken(book, anna, CLOCK)).book;
    const words = /as many operators have joined by it .* on main, by odmoe operator add anna$/;
    assert.match(refusalOf(useToken(used, anna, CLOCK)), words);
  });

  it('tell nothing of a token to who does not know its secret', () => {
    const { book, use } = made();
    const revoked = done(revokeToken(book, use.tokenId, NOW_MS));
    assert.match(refusalOf(useToken(revoked, { ...use, secret: 'guess' }, CLOCK)), /has another secret/);
  });

  it('are judged by the uptime since they were made where the clock was set back', () => {
    const { book, use } = made();
    const back = (uptimeMs: number, bootId = 'one'): TokenClock => ({
      nowMs: 1000,
      uptimeMs,
      bootId,
      clockIsSetBack: true,
    });
    done(useToken(book, use, back(CLOCK.uptimeMs + 23 * HOUR_MS)));
    assert.match(refusalOf(useToken(book, use, back(CLOCK.uptimeMs + 25 * HOUR_MS))), /expired/);
    // A week later, in another start of the system that has lasted longer than the first had when the token was made.
    const restarted = useToken(book, use, back(CLOCK.uptimeMs + HOUR_MS, 'two'));
    assert.match(refusalOf(restarted), /clock was set back, and main's host was started again/);
    assert.deepEqual(
      listTokens(book, back(CLOCK.uptimeMs + HOUR_MS, 'two')).map(({ state, leftMs }) => [state, leftMs]),
      [['expired', null]],
    );
  });

  it('name the start of the system as Linux does', () => {
    assert.equal(RUNTIME.hostBootId(), readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim());
  });

  it('show by their own times, and the roster by its, that the clock was set back', () => {
    const { book } = made();
    const empty = firstRoster('home');
    const listed: Roster = done(listPeer(empty, { role: 'worker', id: 'w1', keyDigest: DIGEST }, NOW_MS));
    assert.equal(isClockSetBack(0, EMPTY_TOKEN_BOOK, empty), false);
    for (const [ownBook, roster] of [
      [book, empty],
      [EMPTY_TOKEN_BOOK, listed],
    ] as const) {
      assert.equal(isClockSetBack(NOW_MS - 1, ownBook, roster), true);
      assert.equal(isClockSetBack(NOW_MS, ownBook, roster), false);
    }
  });

  it('are kept without their secrets', () => {
    const { book, use } = made();
    const stored = JSON.stringify(book);
    assert.equal(stored.includes(use.secret), false);
    assert.equal(book.tokens[0]?.secretDigest, secretDigest(use.secret));
    assert.deepEqual(parseTokenBook(JSON.parse(stored)), book);
    assert.equal(parseTokenBook({ tokens: [{ ...book.tokens[0], usesLeft: -1 }] }), null);
    assert.equal(parseTokenBook('tokens'), null);
  });

  it('are made within bounds', () => {
    for (const [changes, words] of [
      [{ role: 'main' }, /nobody joins as main/],
      [{ uses: 0 }, /1 to 256 machines/],
      [{ uses: 1.5 }, /1 to 256 machines/],
      [{ lifeMs: 0 }, /good for a second to/],
      [{ lifeMs: NaN }, /good for a second to/],
      [{ lifeMs: TOKEN_LIFE_LIMIT_MS + 1 }, /good for a second to/],
      [{ name: '../etc' }, /is no id: give letters, digits, .* a letter or digit first/],
    ] as const) {
      assert.match(refusalOf(createToken(EMPTY_TOKEN_BOOK, { ...wanted, ...changes }, DIGEST, CLOCK, chance)), words);
    }
    assert.match(refusalOf(revokeToken(EMPTY_TOKEN_BOOK, 'x', NOW_MS)), /there is no token "x"/);
  });

  it('are forgotten, the oldest first, where they are over and there are too many', () => {
    let book = EMPTY_TOKEN_BOOK;
    for (let count = 0; count < TOKENS_LIMIT; count++) book = made({}, book).book;
    assert.match(refusalOf(createToken(book, wanted, DIGEST, CLOCK, chance)), /128 tokens are valid/);
    const over = book.tokens[5]?.id ?? '';
    book = made({}, done(revokeToken(book, over, NOW_MS))).book;
    assert.equal(book.tokens.length, TOKENS_LIMIT);
    assert.equal(
      book.tokens.some(({ id }) => id === over),
      false,
    );
  });

  it('never let in more machines than they are for, whoever asks in whatever order', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 4 }), fc.array(fc.nat(9), { maxLength: 30 }), (uses, machines) => {
        const { book, use } = made({ uses });
        const letIn = new Set<number>();
        let now = book;
        for (const machine of machines) {
          const result = useToken(now, by(use, String(machine), letIn.has(machine)), CLOCK);
          if (isRefusal(result)) {
            assert.ok(!letIn.has(machine));
            continue;
          }
          now = result.book;
          letIn.add(machine);
        }
        assert.equal(letIn.size, Math.min(uses, new Set(machines).size));
      }),
    );
  });
});

describe('the proof of a key', () => {
  const key = createNodeKey();
  const publicKey = createPublicKey(key);
  const exporter = Buffer.alloc(EXPORTER_BYTES, 3);
  const proof = proveKey(key, exporter, 'w1');

  it('holds for its key, connection and id alone', () => {
    assert.equal(isKeyProof(proof, publicKey, exporter, 'w1'), true);
    assert.equal(isKeyProof(proof, publicKey, exporter, 'w2'), false);
    assert.equal(isKeyProof(proof, publicKey, Buffer.alloc(EXPORTER_BYTES, 4), 'w1'), false);
    assert.equal(isKeyProof(proof, createPublicKey(createNodeKey()), exporter, 'w1'), false);
    assert.equal(isKeyProof(Buffer.alloc(0), publicKey, exporter, 'w1'), false);
    const strange = proveKey(createNodeKey(), exporter, 'w1');
    assert.equal(isKeyProof(strange, publicKey, exporter, 'w1'), false);
  });

  it('is made for a whole export only', () => {
    assert.throws(() => proveKey(key, Buffer.alloc(16), 'w1'), /exported 16 bytes/);
  });
});

describe("an authority's words", () => {
  it('are four of the list, by the first 44 bits', () => {
    assert.equal(authorityWords('0'.repeat(64)), 'abandon abandon abandon abandon');
    assert.equal(authorityWords('f'.repeat(64)), 'zoo zoo zoo zoo');
    // The words 0, 1, 2 and 3, of 11 bits each.
    const bits = [0, 1, 2, 3].map((word) => word.toString(2).padStart(11, '0')).join('');
    const digest = BigInt(`0b${bits}`).toString(16).padStart(11, '0').padEnd(64, 'a');
    assert.equal(authorityWords(digest), 'abandon ability able about');
  });

  it('come from a list that never changes: two releases must show the same words', () => {
    assert.equal(wordlist.length, 2048);
    const digest = createHash('sha256').update(wordlist.join('\n')).digest('hex');
    assert.equal(digest, '187db04a869dd9bc7be80d21a86497d692c0db6abd3aa8cb6be5d618ff757fae');
  });
});
