import assert from 'node:assert/strict';
import { createPublicKey } from 'node:crypto';
import { connect, createServer, type Server, type TLSSocket } from 'node:tls';
import { askAuthority } from '../../engine/trust/ask-authority.js';
import { joinByToken, type JoinedCluster, type JoiningMachine, pairWithMain } from '../../engine/trust/enrol.js';
import { EnrolmentConnection } from '../../engine/trust/enrolment-connection.js';
import { ENROLMENT_PATHS, pairReplySchema, waitReplySchema } from '../../engine/trust/enrolment-messages.js';
import { readJoinToken } from '../../engine/trust/join-token.js';
import { proveKey, proveNextKey } from '../../engine/trust/key-proof.js';
import { PAIRING_ABSENCE_MS, PAIRING_LIFE_MS, pairingCommitment, PAIRINGS_LIMIT } from '../../engine/trust/pairing.js';
import { presentEntry, readRoster } from '../../engine/trust/roster.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { createNodeKey, keyDigest, readPeerCertificate, spkiOf } from '../../shared/transport/trust/certificate.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';
import { ENROLMENT_PROTOCOL, tlsOptions } from '../../shared/transport/trust/tls-options.js';
import { waitUntil } from '../integration/harness/wait-until.js';
import { RUNTIME } from '../wall.js';
import { TestCluster } from './cluster-authority.js';
import { EnrolmentMain, machineOf, MovedRuntime } from './enrolment-main.js';
import { addressOf, startRefusingMain } from './refusing-main.js';

const CONTEXT = { runtime: RUNTIME };

async function refusal(asked: Promise<unknown>, code: ErrorCode, words: RegExp): Promise<void> {
  const thrown: unknown = await asked.then(
    () => null,
    (error: unknown) => error,
  );
  assert.ok(thrown instanceof OdmoeError, 'it was refused');
  assert.deepEqual([thrown.code, words.test(thrown.message)], [code, true], thrown.message);
}

/** A machine that pairs, with the code on its screen. */
interface Screen {
  readonly code: string;
  readonly words: string;
  readonly joined: Promise<JoinedCluster>;
}

function screenOf(address: string, machine = machineOf('jetson'), context: object = {}): Promise<Screen> {
  return new Promise((resolve, reject) => {
    const onCode = (code: string, words: string): void => resolve({ code, words, joined });
    const joined = pairWithMain(address, machine, onCode, { ...CONTEXT, ...context });
    joined.catch(reject);
  });
}

function secretOf(token: string): string {
  const read = readJoinToken(token);
  assert.ok(!isRefusal(read));
  return read.secret;
}

/** A code that no machine shows. */
function otherThan(code: string): string {
  return code === '000000' ? '000001' : '000000';
}

describe('enrolment', () => {
  let main: EnrolmentMain;
  let others: EnrolmentMain[];
  let relays: Server[];

  beforeEach(async () => {
    others = [];
    relays = [];
    main = await new EnrolmentMain().start();
  });

  afterEach(async () => {
    await Promise.all([main, ...others].map((each) => each.stop()));
    for (const relay of relays) relay.close();
  });

  async function otherMain(): Promise<EnrolmentMain> {
    const other = await new EnrolmentMain(new TestCluster()).start();
    others.push(other);
    return other;
  }

  function checkJoined(joined: JoinedCluster, machine: JoiningMachine): void {
    const peer = readPeerCertificate(joined.certificate, main.desk.authority);
    const roster = readRoster(joined.roster, main.desk.authority);
    assert.ok(!isRefusal(peer) && !isRefusal(roster));
    const digest = keyDigest(createPublicKey(machine.key));
    assert.deepEqual([peer.id, peer.role, peer.keyDigest], [machine.id, machine.role, digest]);
    assert.equal(presentEntry(roster, machine.id)?.keyDigest, digest);
    assert.deepEqual([joined.cluster, joined.words], ['test', main.desk.words]);
  }

  describe('by a token', () => {
    it('lets a machine in, counts the use before it signs, and logs no secret', async () => {
      const token = await main.token();
      main.state.saves.length = 0;
      const machine = machineOf('jetson');
      checkJoined(await joinByToken(main.address, token, machine, CONTEXT), machine);
      assert.deepEqual(main.state.saves, ['tokens', 'roster']);
      assert.ok(Buffer.concat(main.seen).toString().includes(secretOf(token)), 'main saw the secret');
      assert.ok(main.log.all.some((line) => line.includes('joined by a token')));
      assert.ok(!main.log.all.join('\n').includes(secretOf(token)));
      assert.deepEqual(
        main.desk.listTokens().map(({ state }) => state),
        ['used up'],
      );
    });

    it('takes the same machine again for free, and no other one', async () => {
      const token = await main.token();
      const machine = machineOf('jetson');
      await joinByToken(main.address, token, machine, CONTEXT);
      main.state.saves.length = 0;
      checkJoined(await joinByToken(main.address, token, machine, CONTEXT), machine);
      assert.deepEqual(main.state.saves, []);
      const asked = joinByToken(main.address, token, machineOf('other'), CONTEXT);
      await refusal(asked, 'JOIN_TOKEN_INVALID', /is used up: as many machines have joined/);
      assert.ok(!main.log.all.join('\n').includes(secretOf(token)));
    });

    it('takes no removed machine back by its used-up token, however often its key was renewed', async () => {
      const token = await main.token(1, 24 * 3_600_000);
      const machine = machineOf('jetson');
      await joinByToken(main.address, token, machine, CONTEXT);
      let { key } = machine;
      for (let renewal = 0; renewal < 2; renewal++) {
        main.runtime.laterMs += 2 * 3_600_000;
        const next = createNodeKey();
        const peer = {
          cluster: 'test',
          role: 'worker',
          id: 'jetson',
          keyDigest: keyDigest(createPublicKey(key)),
        } as const;
        await main.desk.renewKey(peer, { spki: spkiOf(createPublicKey(next)), proof: proveNextKey(next, 'jetson') });
        key = next;
      }
      const used = /is used up: as many machines have joined/;
      const second = { ...machine, id: 'second' };
      await refusal(joinByToken(main.address, token, second, CONTEXT), 'JOIN_TOKEN_INVALID', used);
      await main.desk.removeNode('jetson');
      await refusal(joinByToken(main.address, token, machine, CONTEXT), 'JOIN_TOKEN_INVALID', used);
      assert.equal(presentEntry(main.state.roster, 'jetson'), undefined);
    });

    it('gives a use to one of two machines that ask at one time', async () => {
      const token = await main.token(1);
      main.state.saveMs = 200;
      const asked = ['one', 'two'].map((id) => joinByToken(main.address, token, machineOf(id), CONTEXT));
      const results = await Promise.allSettled(asked);
      assert.deepEqual(results.map(({ status }) => status).sort(), ['fulfilled', 'rejected']);
      assert.equal(main.state.roster.entries.length, 1);
    });

    it('has words for expired, revoked, unknown, mistyped, cut short, and another name', async () => {
      const ask = (token: string): Promise<unknown> => joinByToken(main.address, token, machineOf('jetson'), CONTEXT);
      const [short, gone, named] = [await main.token(1, 2000), await main.token(), await main.token(1, 60_000, 'box')];
      await refusal(ask(named), 'JOIN_TOKEN_INVALID', /is for the machine box, and not for jetson/);
      main.runtime.laterMs = 5000;
      await refusal(ask(short), 'JOIN_TOKEN_INVALID', /expired .* ago, by main's clock/);
      const read = readJoinToken(gone);
      assert.ok(!isRefusal(read));
      await main.desk.revokeToken(read.id);
      await refusal(ask(gone), 'JOIN_TOKEN_INVALID', /was revoked on main/);
      main.state.tokens = { tokens: [] };
      await refusal(ask(gone), 'JOIN_TOKEN_INVALID', /is not known to this main/);
      const seen = main.seen.length;
      const wrong = gone.slice(0, -1) + (gone.endsWith('a') ? 'b' : 'a');
      await refusal(ask(wrong), 'JOIN_TOKEN_INVALID', /is mistyped/);
      await refusal(ask(gone.slice(0, 60)), 'JOIN_TOKEN_INVALID', /is cut short \(60 of/);
      assert.equal(main.seen.length, seen, 'such a token is sent nowhere');
    });

    it('refuses an id that another key holds, without a use, until it is replaced', async () => {
      const token = await main.token(3);
      await joinByToken(main.address, token, machineOf('jetson'), CONTEXT);
      const second = machineOf('jetson');
      const ask = (): Promise<JoinedCluster> => joinByToken(main.address, token, second, CONTEXT);
      await refusal(
        ask(),
        'TRUST_REFUSED',
        /with another key: choose another --id, or say on main: odmoe node replace/,
      );
      assert.equal(main.state.tokens.tokens[0]?.usesLeft, 2);
      await main.desk.removeNode('jetson');
      checkJoined(await ask(), second);
      await refusal(main.desk.removeNode('nobody'), 'USAGE', /has no node nobody/);
      await main.desk.removeNode('jetson');
      await refusal(ask(), 'TRUST_REFUSED', /this key was removed: take a new one/);
      assert.ok(main.desk.listNodes().every(({ removed }) => removed !== undefined));
    });

    it('says that main failed, without its files, and certifies nobody', async () => {
      const token = await main.token();
      main.state.failure = new OdmoeError('STORAGE_FULL', '/secret/place/tokens: the disk is full');
      const ask = (): Promise<unknown> => joinByToken(main.address, token, machineOf('jetson'), CONTEXT);
      await refusal(ask(), 'STORAGE_FULL', /^main failed at this, and its log says why/);
      assert.ok(main.log.all.some((line) => line.includes('/secret/place')));
      assert.equal(main.state.roster.entries.length, 0);
      main.state.failure = null;
      await ask();
    });

    it('sends nothing secret to a main of another authority', async () => {
      const token = await main.token();
      const fake = await otherMain();
      const asked = joinByToken(fake.address, token, machineOf('jetson'), CONTEXT);
      await refusal(asked, 'TRUST_REFUSED', /shows another authority than the token names/);
      const seen = Buffer.concat(fake.seen).toString();
      assert.ok(seen.includes('/v1/authority'));
      assert.ok(!seen.includes(secretOf(token)) && !seen.includes('/v1/join'));
    });

    it('sends nothing secret to one who stands between and shows the true authority', async () => {
      const token = await main.token();
      const { address, seen } = await relay();
      const asked = joinByToken(address, token, machineOf('jetson'), CONTEXT);
      await refusal(asked, 'TRUST_REFUSED', /is not to be trusted.*Something stands between; nothing secret was sent/);
      const text = Buffer.concat(seen).toString();
      assert.ok(text.includes('/v1/authority'));
      assert.ok(!text.includes(secretOf(token)) && !text.includes('/v1/join'));
    });

    it('refuses a proof that was made on another connection', async () => {
      const token = readJoinToken(await main.token());
      assert.ok(!isRefusal(token));
      const { id, role, key, spki } = machineOf('jetson');
      const first = await EnrolmentConnection.open(main.address, null, CONTEXT);
      const second = await EnrolmentConnection.open(main.address, null, CONTEXT);
      const proof = proveKey(key, first.exporter, id).toString('base64');
      const message = { tokenId: token.id, secret: token.secret, spki: spki.toString('base64'), id, role, proof };
      const asked = second.ask(ENROLMENT_PATHS.join, message, waitReplySchema);
      await refusal(asked, 'TRUST_REFUSED', /does not hold the key that it shows, or somebody stands between/);
      first.close();
      second.close();
    });
  });

  describe('by a code', () => {
    it('lets the machine in whose code is typed, with the same words on both sides', async () => {
      const machine = machineOf('jetson');
      const { code, words, joined } = await screenOf(main.address, machine);
      const [waiting] = main.desk.waitingMachines();
      const { id, role, device, address } = waiting ?? {};
      assert.deepEqual([id, role, device, address], ['jetson', 'worker', 'cuda sm_87', '127.0.0.1']);
      const accepted = await main.desk.accept(code);
      assert.deepEqual([accepted.id, accepted.words], ['jetson', words]);
      checkJoined(await joined, machine);
      assert.deepEqual(main.desk.waitingMachines(), []);
      await refusal(main.desk.accept(code), 'USAGE', /jetson was let in by this code .* ago/);
      assert.equal(main.log.all.filter((line) => line.includes('type the code that it shows')).length, 1);
      assert.ok(!main.log.all.join('\n').includes(code));
    });

    it('sends the machine away after three wrong codes', async () => {
      const { code, joined } = await screenOf(main.address);
      const gone = refusal(joined, 'JOIN_TOKEN_INVALID', /3 wrong codes were typed at main/);
      for (let typed = 1; typed <= 3; typed++) {
        await refusal(main.desk.accept(otherThan(code)), 'JOIN_TOKEN_INVALID', /no machine with the code/);
      }
      await gone;
      await refusal(main.desk.accept(code), 'JOIN_TOKEN_INVALID', /no machine waits/);
    });

    it('has no room for a 17th machine, and one with a token needs none', async () => {
      const exporter = Buffer.alloc(32);
      for (let each = 0; each < PAIRINGS_LIMIT; each++) {
        const request = { id: `m${each}`, role: 'worker' as const, device: '', address: `10.0.0.${each}`, exporter };
        main.desk.beginPairing({ ...request, commitment: Buffer.alloc(32, each) });
      }
      const words =
        /16 machines wait at main already: join by a token \(odmoe token create on main\).*accept only a machine whose code you have read/;
      await refusal(screenOf(main.address), 'TRUST_REFUSED', words);
      const machine = machineOf('jetson');
      checkJoined(await joinByToken(main.address, await main.token(), machine, CONTEXT), machine);
    });

    it('says to both sides what to do where main cannot write down who was let in, and sent the machine away', async () => {
      const { code, joined } = await screenOf(main.address);
      const gone = refusal(
        joined,
        'JOIN_TOKEN_INVALID',
        /main could not write down that it is let in: look at its log, and start this again for a new code$/,
      );
      const full = new Error('ENOSPC: no space left on device, write');
      main.state.failure = writeFailure(Object.assign(full, { code: 'ENOSPC' }), '/state/roster', null);
      const words =
        /^main could not write down that jetson is let in \(ENOSPC: no space left on device, write\), and sent it away: mend that, start jetson again, and type its new code$/;
      await refusal(main.desk.accept(code), 'STORAGE_FULL', words);
      await gone;
    });

    it('keeps no place for a machine whose connection ended before it showed a key', async () => {
      const { id, role, device } = machineOf('jetson');
      const begin = { commitment: Buffer.alloc(32).toString('base64'), id, role, device };
      const connection = await EnrolmentConnection.open(main.address, null, CONTEXT);
      const { pairingId } = await connection.ask(ENROLMENT_PATHS.pair, begin, pairReplySchema);
      const isKept = (): Promise<boolean> =>
        main.desk
          .waitForDecision(pairingId, AbortSignal.abort(), () => undefined)
          .then(
            () => true,
            () => false,
          );
      assert.equal(await isKept(), true);
      connection.close();
      while (await isKept()) await RUNTIME.sleep(10);
    });

    it('ends after ten minutes', async () => {
      main.runtime.longestTimerMs = 100;
      const { code, joined } = await screenOf(main.address);
      const gone = refusal(joined, 'JOIN_TOKEN_INVALID', /nobody typed the code of this machine at main within 10 min/);
      main.runtime.laterMs = PAIRING_LIFE_MS;
      await gone;
      await refusal(main.desk.accept(code), 'JOIN_TOKEN_INVALID', /no machine waits/);
    });

    it('is good no more when the machine is stopped, and main has nobody waiting at once', async () => {
      const stop = new AbortController();
      const { code, joined } = await screenOf(main.address, machineOf('jetson'), { signal: stop.signal });
      const gone = refusal(joined, 'CANCELLED', /interrupted/);
      assert.equal(main.desk.waitingMachines().length, 1);
      stop.abort();
      await gone;
      assert.deepEqual(main.desk.waitingMachines(), []);
      await refusal(main.desk.accept(code), 'JOIN_TOKEN_INVALID', /no machine waits/);
      assert.ok(main.log.all.some((line) => /stopped before it was let in .*"id":"jetson"/.test(line)));
    });

    it('is good no more a while after the connection of the machine has died, and not while it stands', async () => {
      const stop = new AbortController();
      let waiting: TLSSocket | null = null;
      main.onData = (text, socket) => {
        if (text.includes(ENROLMENT_PATHS.wait)) waiting = socket;
      };
      // As a process that was killed, it does not come back.
      const killed = Object.assign(new MovedRuntime(), {
        sleep: (_: number, signal?: AbortSignal) => RUNTIME.sleep(60_000, signal),
      });
      const { code, joined } = await screenOf(main.address, machineOf('jetson'), {
        runtime: killed,
        signal: stop.signal,
      });
      const gone = refusal(joined, 'CANCELLED', /interrupted/);
      await waitUntil('the machine waits', () => waiting !== null);
      main.runtime.laterMs = 3 * PAIRING_ABSENCE_MS;
      assert.equal(main.desk.waitingMachines().length, 1);
      const socket = requirePresent<TLSSocket>(waiting, 'It waits.');
      const closed = new Promise((resolve) => socket.once('close', resolve));
      socket.destroy();
      await closed;
      // The desk hears of it a few steps later.
      await new Promise((resolve) => setImmediate(resolve));
      main.runtime.laterMs += PAIRING_ABSENCE_MS - 1000;
      assert.equal(main.desk.waitingMachines().length, 1, 'it may come back');
      main.runtime.laterMs += 1000;
      assert.deepEqual(main.desk.waitingMachines(), []);
      await refusal(main.desk.accept(code), 'JOIN_TOKEN_INVALID', /no machine waits/);
      stop.abort();
      await gone;
    });

    it('goes on when waits end and connections break, and gets a decision that was made meanwhile', async () => {
      const machine = machineOf('jetson');
      main.runtime.longestTimerMs = 100;
      let waits = 0;
      main.onData = (text, socket) => {
        if (!text.includes(ENROLMENT_PATHS.wait)) return;
        waits += 1;
        if (waits <= 3) socket.destroy();
        if (waits === 5) void main.desk.accept(code);
      };
      let code = '';
      const screen = await screenOf(main.address, machine, {
        runtime: Object.assign(new MovedRuntime(), { sleep: () => RUNTIME.sleep(10) }),
      });
      code = screen.code;
      checkJoined(await screen.joined, machine);
      assert.ok(waits >= 5);
    });

    it('tells the machine when main was started again, and when main does not come back', async () => {
      const impatient = { runtime: Object.assign(new MovedRuntime(), { sleep: () => RUNTIME.sleep(10) }) };
      const codes: string[] = [];
      const onCode = (code: string, words: string, isAnother: boolean): void => {
        assert.deepEqual([words, isAnother], [main.desk.words, codes.length > 0]);
        codes.push(code);
        void main.restart();
      };
      const asked = pairWithMain(main.address, machineOf('jetson'), onCode, CONTEXT);
      await refusal(asked, 'PAIRING_UNKNOWN', /has forgotten 3 codes of this machine within 10 min/);
      assert.equal(new Set(codes).size, 3, 'each is shown, and no fourth one');
      const second = await screenOf(main.address, machineOf('jetson'), impatient);
      const lost = refusal(second.joined, 'NO_MAIN', /went away while this machine waited, and does not come back/);
      await main.stop();
      await lost;
    });

    it('needs no second code for a machine that has lost the reply which let it in', async () => {
      const machine = machineOf('jetson');
      const stopped = new AbortController();
      const { code, joined } = await screenOf(main.address, machine, { signal: stopped.signal });
      const accepted = main.desk.accept(code);
      stopped.abort();
      await Promise.allSettled([accepted, joined]);
      const noCode = () => assert.fail('a code is shown');
      const lines = () => main.log.all.filter((line) => line.includes('type the code that it shows')).length;
      const asked = lines();
      checkJoined(await pairWithMain(main.address, machine, noCode, CONTEXT), machine);
      assert.equal(lines(), asked, 'nobody is to type a code');
      assert.match(main.log.all.filter((line) => line.includes('no code is needed'))[0] ?? '', /"id":"jetson"/);
      assert.deepEqual(main.desk.waitingMachines(), []);
      await main.desk.removeNode('jetson');
      const removed = pairWithMain(main.address, machine, noCode, CONTEXT);
      await refusal(removed, 'TRUST_REFUSED', /this key was removed: take a new one/);
    });

    it('shows no code to a machine whose id is taken', async () => {
      await joinByToken(main.address, await main.token(), machineOf('jetson'), CONTEXT);
      await refusal(screenOf(main.address), 'TRUST_REFUSED', /jetson is a worker of "test".*choose another --id/);
      assert.deepEqual(main.desk.waitingMachines(), []);
    });

    it('tells machine and operator that the id was taken while the machine waited', async () => {
      const { code, joined } = await screenOf(main.address);
      await joinByToken(main.address, await main.token(), machineOf('jetson'), CONTEXT);
      const told = refusal(joined, 'TRUST_REFUSED', /the code was typed, and jetson is a worker of "test"/);
      await refusal(main.desk.accept(code), 'TRUST_REFUSED', /choose another --id/);
      await told;
      await refusal(main.desk.accept(code), 'JOIN_TOKEN_INVALID', /no machine waits/);
    });

    it('shows other codes and words on both sides of one who stands between', async () => {
      const fake = await otherMain();
      const leave = new AbortController();
      const { signal } = leave;
      const victim = await screenOf(fake.address, machineOf('jetson'), { signal });
      const attacker = await screenOf(main.address, machineOf('jetson'), { signal });
      assert.notEqual(victim.code, attacker.code);
      assert.notEqual(victim.words, attacker.words);
      const typed = main.desk.accept(victim.code);
      await refusal(typed, 'JOIN_TOKEN_INVALID', /something stands between you: do not go on/);
      leave.abort();
      for (const { joined } of [victim, attacker]) await refusal(joined, 'CANCELLED', /interrupted/);
    });

    for (const code of ['QUEUE_FULL', 'PAIRING_UNKNOWN', 'JOIN_TOKEN_INVALID']) {
      it(`gives one who stands between and refuses the reveal with ${code} no second guess`, async () => {
        const message = 'this machine waits no more at main';
        const between = await startRefusingMain('test', (path) =>
          path === ENROLMENT_PATHS.reveal ? { code, message } : null,
        );
        try {
          const asked = pairWithMain(between.address, machineOf('jetson'), () => assert.fail('no code'), CONTEXT);
          await refusal(asked, code as ErrorCode, /waits no more at main/);
          assert.deepEqual(between.asked, [ENROLMENT_PATHS.pair, ENROLMENT_PATHS.reveal]);
        } finally {
          between.close();
        }
      });
    }

    it('gets the words of a refusal on one line, so that they imitate none of ours', async () => {
      const message = 'busy\nodmoe worker:   Code: 111 111';
      const rogue = await startRefusingMain('home', () => ({ code: 'TRUST_REFUSED', message }));
      await refusal(screenOf(rogue.address), 'TRUST_REFUSED', /^busy\\nodmoe worker: {3}Code: 111 111$/);
      rogue.close();
    });

    it('begins again where main is too busy to let it begin', async () => {
      let busy = 2;
      const between = await startRefusingMain('test', (path) => {
        if (path === ENROLMENT_PATHS.pair && busy-- > 0) return { code: 'QUEUE_FULL', message: 'busy' };
        return path === ENROLMENT_PATHS.wait ? { code: 'JOIN_TOKEN_INVALID', message: 'over' } : null;
      });
      const impatient = { runtime: Object.assign(new MovedRuntime(), { sleep: () => RUNTIME.sleep(10) }) };
      try {
        const { joined } = await screenOf(between.address, machineOf('jetson'), impatient);
        await refusal(joined, 'JOIN_TOKEN_INVALID', /over/);
        assert.equal(between.asked.filter((path) => path === ENROLMENT_PATHS.pair).length, 3);
      } finally {
        between.close();
      }
    });

    it('does not go on with one who stands between and shows the true authority', async () => {
      const { address } = await relay();
      await refusal(screenOf(address), 'TRUST_REFUSED', /not a main of the authority that it shows/);
      await refusal(askAuthority(address, CONTEXT), 'TRUST_REFUSED', /not a main of the authority that it shows/);
      assert.deepEqual(main.desk.waitingMachines(), []);
    });

    it('lets nobody try connections until one gives the right code', async () => {
      const { id, role, key, spki, device } = machineOf('jetson');
      const nonce = Buffer.alloc(32, 7);
      const begin = { commitment: pairingCommitment(nonce, spki).toString('base64'), id, role, device };
      const first = await EnrolmentConnection.open(main.address, null, CONTEXT);
      const second = await EnrolmentConnection.open(main.address, null, CONTEXT);
      const { pairingId } = await first.ask(ENROLMENT_PATHS.pair, begin, pairReplySchema);
      const revealOn = (connection: EnrolmentConnection): Promise<unknown> => {
        const proof = proveKey(key, connection.exporter, id).toString('base64');
        const message = { pairingId, nonce: nonce.toString('base64'), spki: spki.toString('base64'), proof };
        return connection.ask(ENROLMENT_PATHS.reveal, message, waitReplySchema);
      };
      await refusal(revealOn(second), 'TRUST_REFUSED', /on the connection on which it began/);
      assert.deepEqual(await revealOn(first), { state: 'waiting' });
      first.close();
      second.close();
    });
  });

  describe('that is broken off', () => {
    const steps: readonly (readonly [path: string, ask: (signal: AbortSignal) => Promise<unknown>])[] = [
      [ENROLMENT_PATHS.authority, (signal) => byToken(signal)],
      [ENROLMENT_PATHS.join, (signal) => byToken(signal)],
      [ENROLMENT_PATHS.pair, (signal) => screenOf(main.address, machineOf('jetson'), { signal })],
      [ENROLMENT_PATHS.reveal, (signal) => screenOf(main.address, machineOf('jetson'), { signal })],
    ];

    async function byToken(signal: AbortSignal): Promise<unknown> {
      return joinByToken(main.address, await main.token(), machineOf('jetson'), { ...CONTEXT, signal });
    }

    for (const [path, ask] of steps) {
      it(`has words at ${path}, by main or by the machine`, async () => {
        const isThis = (text: string): boolean => text.includes(` ${path} `);
        main.onData = (text, socket) => void (isThis(text) && socket.destroy());
        await refusal(ask(new AbortController().signal), 'NO_MAIN', /went away before it answered/);
        main.runtime.laterMs = 2000;
        const aborter = new AbortController();
        main.onData = (text) => void (isThis(text) && aborter.abort());
        await refusal(ask(aborter.signal), 'CANCELLED', /interrupted/);
        main.onData = () => undefined;
        main.runtime.laterMs = 4000;
        const machine = machineOf('after');
        checkJoined(await joinByToken(main.address, await main.token(), machine, CONTEXT), machine);
      });
    }

    it('has words while the machine waits', async () => {
      const aborter = new AbortController();
      const { joined } = await screenOf(main.address, machineOf('jetson'), { signal: aborter.signal });
      aborter.abort();
      await refusal(joined, 'CANCELLED', /interrupted/);
    });
  });

  it('has words for a port without TLS, one without enrolment, and one where nothing listens', async () => {
    const { GrpcTransport } = await import('../../shared/transport/grpc-transport.js');
    const { plainIdentity } = await import('./plain-identity.js');
    const network = {
      keepaliveIntervalMs: 500,
      keepaliveTimeoutMs: 700,
      executeTimeoutMs: 1000,
      reconnectDelayMs: 100,
    };
    const options = { host: '127.0.0.1', port: 0, network, log: main.log, node: { identify: () => plainIdentity() } };
    const plain = await new GrpcTransport(RUNTIME, null, null).serve(options);
    const worker = await new GrpcTransport(RUNTIME, null, main.cluster.member('worker')).serve(options);
    const token = await main.token();
    const ask = (address: string): Promise<unknown> => joinByToken(address, token, machineOf('jetson'), CONTEXT);
    await refusal(ask(plain.address), 'TLS_MISMATCH', /speaks no TLS/);
    await refusal(ask(worker.address), 'TRUST_REFUSED', /lets no machines in: give main's address/);
    await Promise.all([plain.stop(), worker.stop()]);
    await refusal(ask(worker.address), 'NO_MAIN', /no main answers at/);
  });

  /** Stands between: TLS of its own on both sides, and every byte passed on. */
  async function relay(): Promise<{ address: string; seen: Buffer[] }> {
    const seen: Buffer[] = [];
    const [host = '', port = ''] = main.address.split(':');
    const options = { ...tlsOptions(new TestCluster().member('main')), ALPNProtocols: [ENROLMENT_PROTOCOL] };
    const server = createServer(options, (victim) => {
      const onwards = connect({
        host,
        port: Number(port),
        rejectUnauthorized: false,
        ALPNProtocols: [ENROLMENT_PROTOCOL],
      });
      victim.on('data', (data: Buffer) => seen.push(data));
      for (const socket of [victim, onwards]) socket.on('error', () => undefined);
      victim.on('close', () => onwards.destroy());
      victim.pipe(onwards).pipe(victim);
    });
    server.on('tlsClientError', () => undefined);
    relays.push(server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return { address: addressOf(server), seen };
  }
});
