import assert from 'node:assert/strict';
import { createPublicKey, type KeyObject } from 'node:crypto';
import fc from 'fast-check';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { createNodeKey, spkiOf } from '../../shared/transport/trust/certificate.js';
import { EXPORTER_BYTES, proveKey } from '../../engine/trust/key-proof.js';
import {
  ACCEPTED_CODES_LIMIT,
  acceptPairing,
  afterConnection,
  BEGINNINGS_LIMIT,
  BEGINNINGS_OF_ADDRESS_LIMIT,
  BEGINNINGS_RESERVED_FOR_ADDRESS,
  BEGINNINGS_WITH_RESERVED_LIMIT,
  beginPairing,
  EMPTY_PAIRING_BOOK,
  PAIRING_ABSENCE_MS,
  PAIRING_LIFE_MS,
  PAIRING_NONCE_BYTES,
  PAIRING_PAUSE_MS,
  PAIRING_REVEAL_MS,
  pairingCode,
  pairingCommitment,
  PAIRINGS_LIMIT,
  PAIRINGS_OF_ADDRESS_LIMIT,
  revealPairing,
  shownCode,
  typedCode,
  waitingPairings,
  withoutAccepted,
  withAbsence,
  withoutPairing,
  type Acceptance,
  type Pairing,
  type PairingBook,
  type PairingReveal,
  type PairingRequest,
} from '../../engine/trust/pairing.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';
import { done, refusalOf } from './refusals.js';

const DIGEST = '3f2a'.repeat(16);
const random = new SeededRandom(3);
const CHANCE = { randomInt: (limit: number): number => random.int(limit) };
const EXPORTER = Buffer.alloc(EXPORTER_BYTES, 9);

/** A machine that wants in, with all that it knows. */
class Machine {
  private readonly key: KeyObject = createNodeKey();
  readonly spki = spkiOf(createPublicKey(this.key));
  readonly nonce = Buffer.from(Array.from({ length: PAIRING_NONCE_BYTES }, () => random.int(256)));
  readonly commitment = pairingCommitment(this.nonce, this.spki);

  constructor(
    readonly id: string,
    readonly address = `192.168.1.${id}`,
  ) {}

  request(changes: Partial<PairingRequest> = {}): PairingRequest {
    const { id, address, commitment } = this;
    return { commitment, id, role: 'worker', device: 'cuda sm_87', address, exporter: EXPORTER, ...changes };
  }

  reveal(exporter = EXPORTER): PairingReveal {
    const { nonce, spki } = this;
    return { nonce, spki, exporter, proof: proveKey(this.key, exporter, this.id) };
  }

  /** The code on its screen. */
  code(mainNonce: Buffer, { exporter = EXPORTER, authorityDigest = DIGEST } = {}): string {
    const { commitment, nonce, spki } = this;
    return pairingCode({ commitment, mainNonce, nonce, authorityDigest, spki, exporter });
  }
}

interface Waiting {
  readonly book: PairingBook;
  readonly pairing: Pairing;
  readonly code: string;
}

/** The machine begins and reveals. */
function waiting(machine: Machine, book: PairingBook = EMPTY_PAIRING_BOOK, nowMs = 0): Waiting {
  const begun = done(beginPairing(book, machine.request(), nowMs, CHANCE));
  const shown = done(revealPairing(begun.book, begun.pairing.pairingId, machine.reveal(), DIGEST, nowMs));
  return { ...shown, code: machine.code(shown.pairing.mainNonce) };
}

/** A code that no machine of the book shows. */
function otherCode(book: PairingBook): string {
  const shown = new Set(book.pairings.map(({ revealed }) => revealed?.code));
  const free = ['000000', '000001', '000002', '000003'].find((code) => !shown.has(code));
  assert.ok(free !== undefined);
  return free;
}

describe('the code of a machine', () => {
  const machine = new Machine('5');
  const mainNonce = Buffer.alloc(PAIRING_NONCE_BYTES, 1);

  it('is six digits that both sides compute', () => {
    const { pairing, code } = waiting(machine);
    assert.match(code, /^\d{6}$/);
    assert.equal(pairing.revealed?.code, code);
  });

  it('depends on everything that somebody between could change', () => {
    const codes = new Set([
      machine.code(mainNonce),
      machine.code(Buffer.alloc(PAIRING_NONCE_BYTES, 2)),
      machine.code(mainNonce, { exporter: Buffer.alloc(EXPORTER_BYTES, 8) }),
      machine.code(mainNonce, { authorityDigest: '91c0'.repeat(16) }),
      new Machine('5').code(mainNonce),
    ]);
    assert.equal(codes.size, 5);
  });

  it('is the same as ever, so that two releases pair', () => {
    const parts = {
      commitment: Buffer.alloc(32, 1),
      mainNonce: Buffer.alloc(32, 2),
      nonce: Buffer.alloc(32, 3),
      authorityDigest: '04'.repeat(32),
      spki: Buffer.alloc(91, 5),
      exporter: Buffer.alloc(32, 6),
    };
    assert.equal(pairingCode(parts), '258172');
    assert.equal(pairingCommitment(parts.nonce, parts.spki).toString('hex').slice(0, 16), 'fab9394444daecb1');
  });

  it('is shown in two halves and read as people type it', () => {
    assert.equal(shownCode('482913'), '482 913');
    for (const typed of ['482913', '482 913', ' 482-913\n']) assert.equal(typedCode(typed), '482913');
    for (const typed of ['48291', '4829134', '48291a', '']) assert.equal(typedCode(typed), null);
  });
});

describe('pairing', () => {
  it('lets the machine in whose code the operator types, once', () => {
    const one = waiting(new Machine('1'));
    const two = waiting(new Machine('2'), one.book);
    const accepted = acceptPairing(two.book, shownCode(one.code), 1);
    assert.ok(!isRefusal(accepted));
    assert.equal(accepted.pairing.request.id, '1');
    assert.deepEqual(
      waitingPairings(accepted.book, 1).map(({ request }) => request.id),
      ['2'],
    );
  });

  it('says who was let in by a code that is typed again, which is no wrong code', () => {
    const one = waiting(new Machine('1'));
    const two = waiting(new Machine('2'), one.book);
    const accepted = acceptPairing(two.book, one.code, 1);
    assert.ok(!isRefusal(accepted));
    const { book } = accepted;
    const again = acceptPairing(book, one.code, 7000);
    assert.match(refusalOf(again), /^1 was let in by this code 7 s ago: there is nothing to do/);
    assert.deepEqual([again.book.wrongCodes, again.book.pairings.length], [0, 1]);
    assert.match(refusalOf(acceptPairing(withoutAccepted(book, one.code), one.code, 7000)), /no machine with the code/);
    assert.match(refusalOf(acceptPairing(book, one.code, 1 + PAIRING_LIFE_MS)), /no machine waits/);
  });

  it('remembers the last 16 codes that let a machine in', () => {
    let book = EMPTY_PAIRING_BOOK;
    const codes: string[] = [];
    for (let each = 0; each <= ACCEPTED_CODES_LIMIT; each++) {
      const one = waiting(new Machine(String(each)), book, each);
      const accepted = acceptPairing(one.book, one.code, each);
      assert.ok(!isRefusal(accepted));
      codes.push(one.code);
      ({ book } = accepted);
    }
    assert.deepEqual(
      book.accepted.map(({ code }) => code),
      codes.slice(1),
    );
  });

  it('shows no code of a machine before it has revealed its nonce', () => {
    const { book } = done(beginPairing(EMPTY_PAIRING_BOOK, new Machine('1').request(), 0, CHANCE));
    assert.deepEqual(waitingPairings(book, 0), []);
    assert.match(refusalOf(acceptPairing(book, '482913', 0)), /no machine with the code 482 913 waits/);
  });

  it('refuses a machine that reveals another nonce or key than it committed itself to', () => {
    const machine = new Machine('1');
    const { book, pairing } = done(beginPairing(EMPTY_PAIRING_BOOK, machine.request(), 0, CHANCE));
    const tryReveal = (reveal: PairingReveal): string =>
      refusalOf(revealPairing(book, pairing.pairingId, reveal, DIGEST, 0));
    const other = new Machine('1');
    assert.match(tryReveal({ ...machine.reveal(), nonce: other.nonce }), /something else than it committed/);
    assert.match(tryReveal(other.reveal()), /something else than it committed/);
    assert.match(tryReveal({ ...machine.reveal(), proof: other.reveal().proof }), /does not hold the key/);
    assert.match(
      tryReveal({ ...machine.reveal(), exporter: Buffer.alloc(EXPORTER_BYTES, 1) }),
      /on the connection on which it began/,
    );
    assert.match(tryReveal({ ...machine.reveal(), exporter: Buffer.alloc(3) }), /on the connection on which/);
    const short = pairingCommitment(machine.nonce.subarray(1), machine.spki);
    const begun = done(beginPairing(EMPTY_PAIRING_BOOK, machine.request({ commitment: short }), 0, CHANCE));
    const reveal = { ...machine.reveal(), nonce: machine.nonce.subarray(1) };
    assert.match(refusalOf(revealPairing(begun.book, begun.pairing.pairingId, reveal, DIGEST, 0)), /something else/);
  });

  it('takes the same reveal again, and no other connection', () => {
    const machine = new Machine('1');
    const { book, pairing } = waiting(machine);
    const again = done(revealPairing(book, pairing.pairingId, machine.reveal(), DIGEST, 5));
    assert.deepEqual(again.pairing.revealed?.code, pairing.revealed?.code);
    const elsewhere = machine.reveal(Buffer.alloc(EXPORTER_BYTES, 2));
    assert.match(
      refusalOf(revealPairing(book, pairing.pairingId, elsewhere, DIGEST, 5)),
      /on the connection on which it began/,
    );
  });

  it('ends after ten minutes', () => {
    const machine = new Machine('1');
    const { book, pairing, code } = waiting(machine);
    assert.equal(waitingPairings(book, PAIRING_LIFE_MS - 1).length, 1);
    assert.equal(waitingPairings(book, PAIRING_LIFE_MS).length, 0);
    assert.match(refusalOf(acceptPairing(book, code, PAIRING_LIFE_MS)), /no machine waits/);
    const late = revealPairing(book, pairing.pairingId, machine.reveal(), DIGEST, PAIRING_LIFE_MS);
    assert.match(refusalOf(late), /waits no more/);
  });

  it('ends for a machine that has gone, unless it comes back soon', () => {
    const { book, pairing, code } = waiting(new Machine('1'));
    const gone = withAbsence(book, pairing.pairingId, 500);
    assert.equal(waitingPairings(gone, 500 + PAIRING_ABSENCE_MS - 1).length, 1);
    assert.equal(waitingPairings(gone, 500 + PAIRING_ABSENCE_MS).length, 0);
    assert.match(refusalOf(acceptPairing(gone, code, 500 + PAIRING_ABSENCE_MS)), /no machine waits/);
    const back = withAbsence(gone, pairing.pairingId, null);
    assert.ok(!isRefusal(acceptPairing(back, code, 500 + PAIRING_ABSENCE_MS)));
  });

  it('sends every machine away after three wrong codes, and not before', () => {
    const one = waiting(new Machine('1'));
    let result: Acceptance = acceptPairing(one.book, otherCode(one.book), 1);
    assert.match(refusalOf(result), /if a machine shows it, something stands between you: do not go on/);
    result = acceptPairing(result.book, otherCode(one.book), 1);
    assert.equal(waitingPairings(result.book, 1).length, 1);
    const rightAfterTwo = acceptPairing(result.book, one.code, 1);
    assert.ok(!isRefusal(rightAfterTwo));
    assert.equal(rightAfterTwo.book.wrongCodes, 0);
    result = acceptPairing(result.book, otherCode(one.book), 1);
    assert.match(refusalOf(result), /after 3 wrong codes every machine was sent away: start them again/);
    assert.equal(waitingPairings(result.book, 1).length, 0);
    assert.match(refusalOf(acceptPairing(result.book, one.code, 1)), /no machine waits/);
  });

  it('does not count what is no code', () => {
    const one = waiting(new Machine('1'));
    const result = acceptPairing(one.book, 'yes', 1);
    assert.match(refusalOf(result), /six digits/);
    assert.equal(result.book.wrongCodes, 0);
  });

  it('lets in neither of two machines with one code', () => {
    const one = waiting(new Machine('1'));
    const two = waiting(new Machine('2'), one.book);
    const pairings = two.book.pairings.map((pairing) => ({ ...pairing, revealed: one.pairing.revealed }));
    const result = acceptPairing({ ...two.book, pairings }, one.code, 1);
    assert.match(refusalOf(result), /2 machines show the code/);
    assert.equal(waitingPairings(result.book, 1).length, 0);
  });

  it('has room for 16 machines, each second one from an address', () => {
    let book = EMPTY_PAIRING_BOOK;
    for (let machine = 0; machine < PAIRINGS_LIMIT; machine++) book = waiting(new Machine(String(machine)), book).book;
    const one = new Machine('99');
    assert.match(refusalOf(beginPairing(book, one.request(), 0, CHANCE)), /16 machines wait at main already/);
    const left = withoutPairing(book, book.pairings[3]?.pairingId ?? '');
    const { book: full } = done(beginPairing(left, one.request(), 0, CHANCE));
    assert.match(refusalOf(beginPairing(full, one.request(), PAIRING_PAUSE_MS - 1, CHANCE)), /one machine a second/);
    // The machine that has been started again takes its own place.
    const again = done(beginPairing(full, one.request(), PAIRING_PAUSE_MS, CHANCE));
    assert.equal(again.book.pairings.length, PAIRINGS_LIMIT);
    assert.notEqual(again.pairing.pairingId, full.pairings.at(-1)?.pairingId);
  });

  it('leaves places for machines of other addresses', () => {
    let book = EMPTY_PAIRING_BOOK;
    for (let machine = 0; machine < PAIRINGS_OF_ADDRESS_LIMIT; machine++) {
      const request = new Machine(String(machine), '10.0.0.1').request();
      book = done(beginPairing(book, request, machine * PAIRING_PAUSE_MS, CHANCE)).book;
    }
    const nowMs = PAIRINGS_OF_ADDRESS_LIMIT * PAIRING_PAUSE_MS;
    const ninth = new Machine('ninth', '10.0.0.1').request();
    assert.match(refusalOf(beginPairing(book, ninth, nowMs, CHANCE)), /8 machines of 10\.0\.0\.1 wait at main already/);
    done(beginPairing(book, new Machine('other', '10.0.0.2').request(), nowMs, CHANCE));
    let tries = EMPTY_PAIRING_BOOK;
    for (let each = 0; each < BEGINNINGS_OF_ADDRESS_LIMIT; each++) {
      const begun = done(beginPairing(tries, new Machine('1', '10.0.0.1').request(), each * PAIRING_PAUSE_MS, CHANCE));
      tries = withoutPairing(begun.book, begun.pairing.pairingId);
    }
    const laterMs = BEGINNINGS_OF_ADDRESS_LIMIT * PAIRING_PAUSE_MS;
    assert.match(refusalOf(beginPairing(tries, ninth, laterMs, CHANCE)), /10\.0\.0\.1 has asked 16 times in 10 min/);
    done(beginPairing(tries, new Machine('other', '10.0.0.2').request(), laterMs, CHANCE));
  });

  it("bounds the codes that one may try, who sees one's own code and begins again until it is another's", () => {
    const begunFrom = (addresses: number): number => {
      let book = EMPTY_PAIRING_BOOK;
      let begun = 0;
      for (let nowMs = 0; nowMs < PAIRING_LIFE_MS; nowMs += 500) {
        const address = `10.0.0.${(nowMs / 500) % addresses}`;
        const result = beginPairing(book, new Machine('1', address).request(), nowMs, CHANCE);
        if (isRefusal(result)) continue;
        begun++;
        book = withoutPairing(result.book, result.pairing.pairingId);
      }
      return begun;
    };
    assert.equal(begunFrom(2), 2 * BEGINNINGS_OF_ADDRESS_LIMIT);
    assert.equal(begunFrom(30), BEGINNINGS_LIMIT);
    assert.equal(begunFrom(1000), BEGINNINGS_WITH_RESERVED_LIMIT);
  });

  it('lets an address begin also when a few others have used up all beginnings', () => {
    let book = EMPTY_PAIRING_BOOK;
    for (let each = 0; each < BEGINNINGS_LIMIT; each++) {
      const machine = new Machine('1', `10.0.0.${each % 4}`);
      const begun = done(beginPairing(book, machine.request(), each * PAIRING_PAUSE_MS, CHANCE));
      book = withoutPairing(begun.book, begun.pairing.pairingId);
    }
    let nowMs = BEGINNINGS_LIMIT * PAIRING_PAUSE_MS;
    const honest = new Machine('2');
    for (let each = 0; each < BEGINNINGS_RESERVED_FOR_ADDRESS; each++) {
      ({ book } = done(beginPairing(book, honest.request(), nowMs, CHANCE)));
      nowMs += PAIRING_PAUSE_MS;
    }
    assert.match(
      refusalOf(beginPairing(book, honest.request(), nowMs, CHANCE)),
      /66 machines have asked in 10 min 0 s/,
    );
    done(beginPairing(book, new Machine('1').request(), PAIRING_LIFE_MS + 1, CHANCE));
  });

  it('keeps no place for a machine that shows no key, longer than a request takes or than its connection', () => {
    let book = EMPTY_PAIRING_BOOK;
    for (let each = 0; each < PAIRINGS_LIMIT; each++) {
      const machine = new Machine(String(each), `10.0.0.${each % 2}`);
      book = done(beginPairing(book, machine.request(), each * 550, CHANCE)).book;
    }
    const honest = new Machine('honest').request();
    assert.match(refusalOf(beginPairing(book, honest, 9000, CHANCE)), /16 machines wait at main already/);
    done(beginPairing(book, honest, PAIRING_REVEAL_MS, CHANCE));
    const [first] = book.pairings;
    assert.ok(first !== undefined);
    const gone = afterConnection(book, first.pairingId);
    done(beginPairing(gone, honest, 9000, CHANCE));
    const shown = waiting(new Machine('1'));
    assert.equal(afterConnection(shown.book, shown.pairing.pairingId), shown.book, 'one with a code waits without it');
    assert.equal(afterConnection(gone, first.pairingId), gone);
  });

  it('takes machines as worker or shadow alone, with ids that are ids', () => {
    for (const [changes, words] of [
      [{ role: 'main' }, /nobody joins as main/],
      [{ role: 'operator' }, /operators join by a token/],
      [{ id: '../x' }, /the id that asks is none: give --id/],
      [{ commitment: Buffer.alloc(31) }, /not a SHA-256/],
    ] as const) {
      const result = beginPairing(EMPTY_PAIRING_BOOK, new Machine('1').request(changes), 0, CHANCE);
      assert.match(refusalOf(result), words);
    }
    const chatty = new Machine('1').request({ device: 'x'.repeat(1000) });
    assert.equal(done(beginPairing(EMPTY_PAIRING_BOOK, chatty, 0, CHANCE)).pairing.request.device.length, 100);
  });

  it('never accepts a machine whose code was not typed, in any order of events', () => {
    const machines = ['1', '2', '3'].map((id) => new Machine(id));
    const steps = fc.array(fc.tuple(fc.nat(3), fc.nat(2), fc.integer({ min: 0, max: 300_000 })), { maxLength: 25 });
    fc.assert(
      fc.property(steps, (events) => {
        let book = EMPTY_PAIRING_BOOK;
        let nowMs = 0;
        let inARow = 0;
        for (const [kind, index, passMs] of events) {
          nowMs += passMs;
          const machine = machines[index];
          assert.ok(machine !== undefined);
          if (kind === 0) {
            const begun = beginPairing(book, machine.request(), nowMs, CHANCE);
            if (isRefusal(begun)) continue;
            book = done(revealPairing(begun.book, begun.pairing.pairingId, machine.reveal(), DIGEST, nowMs)).book;
          } else {
            const shown = book.pairings.find(({ request }) => request.id === machine.id);
            const revealed = shown?.revealed ?? null;
            const code = kind === 1 || revealed === null ? otherCode(book) : revealed.code;
            const waits = waitingPairings(book, nowMs);
            const result = acceptPairing(book, code, nowMs);
            const right = waits.find(({ revealed }) => revealed?.code === code);
            assert.equal(isRefusal(result), right === undefined);
            inARow = right !== undefined || waits.length === 0 ? inARow : inARow + 1;
            if (right !== undefined) inARow = 0;
            if (inARow === 3) {
              assert.deepEqual(result.book.pairings, []);
              inARow = 0;
            }
            book = result.book;
          }
          assert.ok(book.pairings.length <= PAIRINGS_LIMIT);
        }
      }),
      { numRuns: 60 },
    );
  });
});
