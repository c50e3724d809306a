import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { join } from 'node:path';
import { DaemonReport } from '../../engine/daemon/daemon-report.js';
import { afterEntering, type EnteredCluster } from '../../engine/daemon/enter-cluster.js';
import { mainAt } from '../../engine/daemon/find-cluster.js';
import { sayMain } from '../../engine/daemon/say-main.js';
import type { RunningNode } from '../../engine/daemon/running-node.js';
import { authorityDirectory } from '../../engine/trust/authority-files.js';
import { createCluster } from '../../engine/trust/create-cluster.js';
import { OperatorService } from '../../main-node/enrolment/operator-service.js';
import { NOT_CONNECTED } from './stored-main.js';
import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { operatorSocketPath } from '../../shared/base/files/state-directory.js';
import { RUNTIME } from '../wall.js';
import { Lines } from './log-lines.js';
import { StoredMain } from './stored-main.js';
import { ENROLMENT_PATHS } from '../../engine/trust/enrolment-messages.js';
import { MovedRuntime } from './enrolment-main.js';
import { startRefusingMain } from './refusing-main.js';
import { startPlainMain } from './plain-main.js';
import { EnteringDaemons } from './entering-daemons.js';

/** Long pauses pass at once, by its clocks. */
class PauseRuntime extends MovedRuntime {
  readonly pausesMs: number[] = [];

  override async sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    if (delayMs < 60_000) return super.sleep(delayMs, signal);
    this.pausesMs.push(delayMs);
    this.laterMs += delayMs;
  }
}

/** A way to main that cuts some connections, counted from 0. */
async function startGate(
  mainAddress: string,
  isCut: (connection: number) => boolean,
): Promise<{ address: string; close: () => void }> {
  const { port } = new URL(`http://${mainAddress}`);
  let connections = 0;
  const server = createServer((socket) => {
    const number = connections++;
    socket.on('error', () => undefined);
    if (isCut(number)) {
      socket.destroy();
      return;
    }
    const onward = connect(Number(port), '127.0.0.1');
    onward.on('error', () => socket.destroy());
    socket.on('close', () => onward.destroy());
    onward.on('close', () => socket.destroy());
    socket.pipe(onward).pipe(socket);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => void server.close() };
}

describe('the way of a daemon into its cluster', () => {
  let daemons: EnteringDaemons;

  beforeEach(() => {
    daemons = new EnteringDaemons();
  });

  afterEach(() => daemons.end());

  describe('of main', () => {
    it('is plaintext on loopback, without ceremony', async () => {
      const entered = await daemons.enter(daemons.settingsOf('main', {}));
      assert.deepEqual([entered.settings.listenHost, entered.opened, daemons.said], ['127.0.0.1', null, []]);
      assert.equal(existsSync(join(daemons.directory, 'jetson')), false, 'no file is made');
    });

    it('makes the authority with --lan, once, and says where it lies', async () => {
      const settings = daemons.settingsOf('main', { cluster: 'home', lan: true });
      const first = await daemons.enter(settings);
      assert.equal(first.settings.listenHost, '0.0.0.0');
      assert.equal(first.opened?.trust.cluster, 'home');
      assert.match(
        daemons.said.join('\n'),
        /^Cluster "home" has an authority now: .*\/home\/authority \(back it up; who has it owns the cluster\)\. Words: \w+ \w+ \w+ \w+$/,
      );
      daemons.said = [];
      const left = join(settings.stateDirectory, 'authority.4242.partial');
      mkdirSync(left);
      const again = await daemons.enterAgain(settings);
      assert.deepEqual(daemons.said, []);
      assert.equal(existsSync(left), false, 'a crashed process has left a key there');
      assert.ok(again.opened?.trust.authority.equals(first.opened?.trust.authority ?? Buffer.alloc(0)));
      const plain = await daemons.enterAgain(daemons.settingsOf('main', { cluster: 'home' }));
      assert.equal(plain.settings.listenHost, '0.0.0.0', 'a cluster with an authority is served on every network');
      const given = await daemons.enterAgain(daemons.settingsOf('main', { cluster: 'home', host: '127.0.0.1' }));
      assert.equal(given.settings.listenHost, '127.0.0.1');
    });

    it('is refused off loopback without an authority, unless --insecure is said', async () => {
      await assert.rejects(daemons.enter(daemons.settingsOf('main', { host: '192.168.1.10' })), {
        code: 'CONFIG_INVALID',
        message:
          /listen on 192\.168\.1\.10, where other machines reach it, and "odmoe" has no authority.*--lan.*odmoe cluster init.*--insecure/,
      });
      const insecure = await daemons.enter(daemons.settingsOf('main', { host: '192.168.1.10', insecure: true }));
      assert.equal(insecure.opened, null);
      assert.equal(
        (await daemons.enter(daemons.settingsOf('main', { insecure: true }))).settings.listenHost,
        '0.0.0.0',
      );
      const both = await daemons.enter(daemons.settingsOf('main', { lan: true, insecure: true }));
      assert.equal(both.opened, null, '--insecure makes no authority');
    });

    it('is refused where another main of the cluster runs, also where both start at the same time', async () => {
      const refusal = {
        code: 'PORT_UNAVAILABLE',
        message: /main\.lock is locked: another main of this cluster runs here: stop it/,
      };
      const mains = Array.from({ length: 8 }, (_, number) =>
        daemons.enter(daemons.settingsOf('main', { cluster: 'home', id: `m${number}`, lan: true }, 'box')),
      );
      const entries = await Promise.allSettled(mains);
      assert.equal(entries.filter(({ status }) => status === 'fulfilled').length, 1);
      for (const entry of entries) {
        if (entry.status === 'rejected')
          assert.throws(() => {
            throw entry.reason;
          }, refusal);
      }
      const roster = (): Buffer => readFileSync(join(authorityDirectory(daemons.stateOf('box', 'home')), 'roster'));
      const before = roster();
      const second = daemons.settingsOf('main', { cluster: 'home', id: 'second' }, 'box');
      await assert.rejects(daemons.enter(second), refusal);
      assert.ok(roster().equals(before), 'a main that is refused changes nothing');
      await daemons.leaveAll();
      assert.ok((await daemons.enter(second)).opened !== null);
    });

    it('goes on with a new certificate where its own files are damaged, and nobody has to join again', async () => {
      const settings = daemons.settingsOf('main', { cluster: 'home', lan: true });
      const first = await daemons.enter(settings);
      const digest = first.opened?.trust.ownPeer.keyDigest;
      const nodeFiles = join(settings.stateDirectory, 'nodes', settings.id);
      for (const name of ['node.key', 'node.crt', 'authority.crt', 'roster']) {
        writeFileSync(join(nodeFiles, name), 'damaged');
        const again = await daemons.enterAgain(settings);
        assert.notEqual(again.opened?.trust.ownPeer.keyDigest, digest, name);
        assert.deepEqual(again.opened?.trust.authority, first.opened?.trust.authority);
      }
    });

    it('goes on without join tokens where their file is gone, and says what to do where one is damaged', async () => {
      const settings = daemons.settingsOf('main', { cluster: 'home', lan: true });
      await daemons.enter(settings);
      const path = join(authorityDirectory(settings.stateDirectory), 'tokens');
      writeFileSync(path, '{');
      await assert.rejects(daemons.enterAgain(settings), {
        code: 'STORAGE_FAILED',
        message: /tokens: .*remove the file: the join tokens are lost then, and odmoe token create makes new ones$/,
      });
      rmSync(path);
      assert.deepEqual((await daemons.enterAgain(settings)).opened?.authority?.tokens, { tokens: [] });
    });

    it("is not replaced by another role's --rejoin under its id", async () => {
      const settings = daemons.settingsOf('main', { cluster: 'home', lan: true });
      await daemons.enter(settings);
      await assert.rejects(
        daemons.enter(daemons.settingsOf('worker', { cluster: 'home', id: settings.id, rejoin: true })),
        {
          code: 'CONFIG_INVALID',
          message: 'main-jetson is the main of this host: give this worker another --id',
        },
      );
      assert.ok(existsSync(join(settings.stateDirectory, 'nodes', settings.id, 'node.crt')));
    });

    it('makes no new authority in the place of one that was lost, as no machine would know it', async () => {
      const stateDirectory = daemons.stateOf('jetson', 'home');
      const lan = daemons.settingsOf('main', { cluster: 'home', lan: true });
      await daemons.enter(lan);
      await daemons.leaveAll();
      rmSync(authorityDirectory(stateDirectory), { recursive: true });
      const refusal = {
        code: 'CONFIG_INVALID',
        message:
          /main-jetson of this host has joined "home".*odmoe cluster restore FILE.*begin anew.*remove .*nodes\/main-jetson$/,
      };
      await assert.rejects(daemons.enterAgain(lan), refusal);
      await assert.rejects(daemons.enterAgain(daemons.settingsOf('main', { cluster: 'home' })), refusal);
      await assert.rejects(daemons.enterAgain(daemons.settingsOf('main', { cluster: 'home', id: 'other' })), refusal);
      await assert.rejects(createCluster(stateDirectory, 'home'), refusal);
      rmSync(join(stateDirectory, 'nodes', 'main-jetson'), { recursive: true });
      assert.ok((await daemons.enter(lan)).opened !== null);
    });

    it('is refused with --insecure where there is an authority', async () => {
      await createCluster(daemons.stateOf('jetson', 'odmoe'), 'odmoe');
      await assert.rejects(daemons.enter(daemons.settingsOf('main', { insecure: true })), {
        code: 'CONFIG_INVALID',
        message: /leave out --insecure/,
      });
    });
  });

  describe('of a worker', () => {
    it('is a code that the operator types, and no code is needed again', async () => {
      const address = await daemons.startHome();
      const entered = await daemons.enterByCode(daemons.settingsOf('worker', { main: address }));
      assert.deepEqual([entered.settings.cluster, entered.settings.listenHost], ['home', '0.0.0.0']);
      assert.equal(entered.settings.stateDirectory, daemons.stateOf('jetson', 'home'));
      const text = daemons.said.join('\n');
      assert.match(text, /^Found main of "home" at 127\.0\.0\.1:\d+\. This machine is not in the cluster yet\.$/m);
      assert.match(
        text,
        /^ {2}Code: \d{3} \d{3} {6}On main: odmoe accept \d{6} \(or type it on its page\)\. Waiting, 10 min/m,
      );
      assert.ok(text.includes(`joined "home" as worker-jetson-7602 (words: ${daemons.main?.desk.words ?? ''})`));
      const waiting = daemons.states.filter((state) => state.startsWith('waits for')).at(-1);
      const [, code, words] = /^waits for odmoe accept (\d{6}) on main, .* words, too: (.*)$/.exec(waiting ?? '') ?? [];
      assert.ok(text.includes(`odmoe accept ${code ?? ''} (`), 'one line has the code and the words');
      assert.ok(text.includes(`Main shows these words, too: ${words ?? ''}`));
      await daemons.main?.stop();
      daemons.main = null;
      daemons.said = [];
      const plain = await daemons.enter(daemons.settingsOf('main', { cluster: 'home' }));
      assert.equal(plain.opened, null, "a worker that has joined elsewhere keeps no main from its host's loopback");
      const again = await daemons.enter(daemons.settingsOf('worker', {}));
      assert.deepEqual(
        [again.settings.cluster, daemons.said],
        ['home', []],
        'also without main, and without the name of the cluster',
      );
    });

    it('is known to the running daemon whose settings name none: what it says of main names it', async () => {
      const address = await daemons.startHome();
      await daemons.enter(daemons.settingsOf('worker', { main: address, join: await daemons.token() }));
      const settings = daemons.settingsOf('worker', { main: address });
      const node: RunningNode = {
        address,
        openCounts: () => ({}),
        components: () => [],
        hasMain: () => false,
        stop: async () => undefined,
      };
      const start = afterEntering(
        async () => node,
        () => 'Orin',
      );
      const { signal } = new AbortController();
      const running = await start(settings, new Lines(), () => undefined, signal, new DaemonReport());
      const said: string[] = [];
      let nowMs = 0;
      const every = (_intervalMs: number, look: () => void): { cancel: () => void; unref: () => void } => {
        nowMs = 10_000;
        look();
        return { cancel: () => undefined, unref: () => undefined };
      };
      sayMain(running, settings, { nowMs: () => nowMs, every }, (text) => said.push(text));
      assert.deepEqual(said, [`no main uses it yet: it waits for main of "home" at ${address}`]);
      await running.stop();
    });

    it('is a token: from the flag, a file or the environment, and not the second time', async () => {
      const main1 = await daemons.startHome();
      const path = join(daemons.directory, 'token');
      writeFileSync(path, `${await daemons.token()}\n`);
      await daemons.enter(daemons.settingsOf('worker', { main: main1, join: await daemons.token() }, 'a'));
      await daemons.enter(daemons.settingsOf('worker', { main: main1, joinFile: path, id: 'b' }, 'b'));
      const variables = { ODMOE_JOIN_TOKEN: await daemons.token('shadow') };
      await daemons.enter(daemons.settingsOf('shadow', { main: main1 }, 'c'), { variables });
      assert.equal(daemons.said.filter((text) => text.startsWith('joined "home"')).length, 3);
      assert.ok(!daemons.said.some((text) => text.includes('Code:')));
      const before = daemons.said.length;
      await daemons.enter(daemons.settingsOf('shadow', { main: main1 }, 'c'), { variables });
      assert.equal(daemons.said.length, before);
    });

    it('is a token that a service manager keeps for it, as long as that is there', async () => {
      const address = await daemons.startHome();
      const variables = { CREDENTIALS_DIRECTORY: daemons.directory };
      const settings = daemons.settingsOf('worker', { main: address }, 'd');
      writeFileSync(join(daemons.directory, 'join'), `${await daemons.token()}\n`);
      await daemons.enter(settings, { variables });
      assert.deepEqual(
        daemons.said.map((text) => text.slice(0, 13)),
        ['joined "home"'],
      );
      // The unit names this word for the time after joining, and without a token a code is shown.
      writeFileSync(join(daemons.directory, 'join'), 'used');
      const shown = new AbortController();
      const waiting = daemons.enter(daemons.settingsOf('worker', { main: address }, 'e'), {
        variables,
        abandoned: shown.signal,
        say: (text) => void (text.includes('odmoe accept') && shown.abort()),
      });
      await assert.rejects(waiting, { code: 'CANCELLED' });
      assert.ok(shown.signal.aborted);
    });

    for (const lost of [0, 1, 2, 3]) {
      it(`is a token also where main goes away at the connection ${lost} of a machine, and comes back`, async () => {
        const address = await daemons.startHome();
        const gate = await startGate(address, (connection) => connection === lost);
        try {
          const token = await daemons.token();
          const entered = await daemons.enter(daemons.settingsOf('worker', { main: gate.address, join: token }));
          assert.equal(entered.opened?.trust.cluster, 'home');
          // The first connection is that of the search, which is told in other words.
          const told = daemons.said.filter((text) => text.includes('this machine is not in yet'));
          assert.equal(told.length, lost === 1 || lost === 2 ? 1 : 0, daemons.said.join('\n'));
        } finally {
          gate.close();
        }
      });
    }

    it('is a token also where eight machines of one host join at the same time', async () => {
      const address = await daemons.startHome();
      const machines = Array.from({ length: 8 }, async (_, number) => {
        const flags = { main: address, join: await daemons.token(), id: `w${number}` };
        return daemons.enter(daemons.settingsOf('worker', flags, `host-${number}`));
      });
      const entered = await Promise.all(machines);
      assert.ok(entered.every(({ opened }) => opened !== null));
    });

    it('ends in words where the token is not good', async () => {
      const address = await daemons.startHome();
      const good = await daemons.token();
      await assert.rejects(daemons.enter(daemons.settingsOf('worker', { main: address, join: good.slice(0, 60) })), {
        code: 'JOIN_TOKEN_INVALID',
        message: /cut short/,
      });
      await daemons.enter(daemons.settingsOf('worker', { main: address, join: good }, 'a'));
      await assert.rejects(
        daemons.enter(daemons.settingsOf('worker', { main: address, join: good, id: 'other' }, 'b')),
        {
          code: 'JOIN_TOKEN_INVALID',
          message: /used/,
        },
      );
      await assert.rejects(
        daemons.enter(daemons.settingsOf('worker', { main: address, joinFile: join(daemons.directory, 'none') })),
        {
          code: 'CONFIG_INVALID',
        },
      );
    });

    it("needs no code on main's own host: who can open the operator's socket is the operator", async () => {
      const stateDirectory = daemons.stateOf('box', 'home');
      await createCluster(stateDirectory, 'home');
      daemons.main = await StoredMain.start(stateDirectory, 'home', (desk) => ({
        operatorSocket: operatorSocketPath(stateDirectory),
        operator: new OperatorService(desk, NOT_CONNECTED, new Lines()),
      }));
      const entered = await daemons.enter(daemons.settingsOf('worker', {}, 'box'));
      assert.equal(entered.settings.cluster, 'home');
      assert.deepEqual(daemons.said.length, 1);
      assert.match(daemons.said[0] ?? '', /^joined "home"/);
    });

    it('is plaintext on loopback, without ceremony', async () => {
      const plain = await startPlainMain('odmoe');
      try {
        const entered = await daemons.enter(daemons.settingsOf('worker', { main: plain.address }));
        assert.deepEqual([entered.opened, entered.settings.listenHost, daemons.said], [null, '127.0.0.1', []]);
        const away = await daemons.enter(daemons.settingsOf('worker', { main: '127.0.0.1:1' }));
        assert.equal(away.opened, null, 'main may come later');
      } finally {
        await plain.stop();
      }
    });

    it('is closed where the name of the cluster is no name: it would become that of a directory', async () => {
      const plain = await startPlainMain('../../elsewhere');
      try {
        assert.equal(await mainAt(plain.address, { runtime: RUNTIME, abandoned: new AbortController().signal }), null);
      } finally {
        await plain.stop();
      }
    });

    it('is refused where main has no authority and others could reach the worker', async () => {
      const plain = await startPlainMain('odmoe');
      try {
        const open = { main: plain.address, host: '0.0.0.0' };
        await assert.rejects(daemons.enter(daemons.settingsOf('worker', open)), {
          code: 'CONFIG_INVALID',
          message: /has no authority that says who may join.*odmoe cluster init.*--insecure/,
        });
        assert.equal((await daemons.enter(daemons.settingsOf('worker', { ...open, insecure: true }))).opened, null);
      } finally {
        await plain.stop();
      }
    });

    it('is refused with --insecure where main speaks TLS', async () => {
      const address = await daemons.startHome();
      await assert.rejects(daemons.enter(daemons.settingsOf('worker', { main: address, insecure: true })), {
        code: 'TLS_MISMATCH',
        message: `main at ${address} speaks TLS and this worker was told --insecure: leave that out`,
      });
    });

    it('is a new code where main was started again while the first one waited', async () => {
      const address = await daemons.startHome();
      const restart = async (): Promise<void> => {
        const port = daemons.main?.server.port;
        await daemons.main?.stop();
        daemons.main = await StoredMain.start(daemons.stateOf('box', 'home'), 'home', () => ({}), port);
      };
      const codes: string[] = [];
      const entered = await daemons.enter(daemons.settingsOf('worker', { main: address }), {
        say: (text) => {
          daemons.said.push(text);
          const code = /odmoe accept (\d{6})/.exec(text)?.[1];
          if (code === undefined) return;
          codes.push(code);
          if (codes.length === 1) void restart();
          else void daemons.main?.desk.accept(code);
        },
      });
      assert.equal(entered.settings.cluster, 'home');
      assert.equal(codes.length, 2);
      assert.match(daemons.said.join('\n'), /main was started again, or .* knows this code no more; here is a new one/);
    });

    it('is another code after a pause, where a service manager runs the worker and its code was not typed', async () => {
      const address = await daemons.startHome();
      const runtime = new PauseRuntime();
      let codes = 0;
      const entered = await daemons.enter(daemons.settingsOf('worker', { main: address }), {
        runtime,
        variables: { NOTIFY_SOCKET: '/run/notify' },
        say: (text) => {
          daemons.said.push(text);
          const code = /odmoe accept (\d{6})/.exec(text)?.[1];
          if (code === undefined) return;
          codes += 1;
          const wrong = code === '000000' ? '000001' : '000000';
          const typed = codes === 1 ? [wrong, wrong, wrong] : [code];
          void Promise.allSettled(typed.map(async (each) => daemons.main?.desk.accept(each)));
        },
      });
      assert.equal(entered.settings.cluster, 'home');
      assert.deepEqual([codes, runtime.pausesMs], [2, [60_000]]);
      assert.match(
        daemons.said.join('\n'),
        /not in yet: 3 wrong codes .*\[JOIN_TOKEN_INVALID\]\. As a service it tries again by itself in 1 min 0 s/,
      );
    });

    for (const code of ['TRUST_REFUSED', 'PAIRING_UNKNOWN', 'NODE_REMOVED'] as const) {
      it(`is three codes in ten minutes at most where one who stands between refuses a service with ${code}`, async () => {
        const refusing = await startRefusingMain('home', (path) =>
          path === ENROLMENT_PATHS.wait ? { code, message: 'no' } : null,
        );
        const runtime = new PauseRuntime();
        const abandon = new AbortController();
        const shownMs: number[] = [];
        const entering = daemons.enter(daemons.settingsOf('worker', { main: refusing.address }), {
          runtime,
          abandoned: abandon.signal,
          variables: { NOTIFY_SOCKET: '/run/notify' },
          say: (text) => {
            if (!/odmoe accept \d{6}/.test(text)) return;
            shownMs.push(runtime.nowMs());
            if (shownMs.length === 7) abandon.abort();
          },
        });
        try {
          await assert.rejects(entering);
          for (const [index, timeMs] of shownMs.slice(3).entries()) {
            assert.ok(timeMs - (shownMs[index] ?? 0) >= 600_000, `at ${shownMs.join(', ')} ms`);
          }
        } finally {
          refusing.close();
        }
      });
    }

    it('tells main when it is stopped while it shows a code, and says that it was not let in', async () => {
      const address = await daemons.startHome();
      const abandon = new AbortController();
      const entering = daemons.enter(daemons.settingsOf('worker', { main: address }), {
        abandoned: abandon.signal,
        say: (text) => {
          daemons.said.push(text);
          if (/odmoe accept \d{6}/.test(text)) setTimeout(() => abandon.abort(), 50);
        },
      });
      await assert.rejects(entering, { code: 'CANCELLED' });
      assert.deepEqual(daemons.main?.desk.waitingMachines(), []);
      assert.equal(daemons.said.at(-1), 'stopped before this machine was let in; its code is good no more');
    });

    it('is closed to a removed worker until it joins again with a new key', async () => {
      const address = await daemons.startHome();
      const settings = daemons.settingsOf('worker', { main: address });
      await daemons.enterByCode(settings);
      await daemons.main?.desk.removeNode('worker-jetson-7602');
      const entered = await daemons.enterByCode({ ...settings, joining: { ...settings.joining, rejoin: true } });
      assert.equal(entered.opened?.trust.ownRemoval, null);
      assert.equal(daemons.main?.desk.listNodes().filter(({ id }) => id === 'worker-jetson-7602').length, 2);
    });

    it('keeps its key when it is to join again while it runs', async () => {
      const address = await daemons.startHome();
      const settings = daemons.settingsOf('worker', { main: address, host: '127.0.0.1', port: 0 });
      const { opened } = await daemons.enterByCode(settings);
      const listener = createServer().listen(0, '127.0.0.1');
      await once(listener, 'listening');
      const { port } = listener.address() as AddressInfo;
      const again = { ...settings, listenPort: port, joining: { ...settings.joining, rejoin: true } };
      try {
        await assert.rejects(daemons.enter(again), {
          code: 'PORT_UNAVAILABLE',
          message: /if it is this daemon, stop it first/,
        });
      } finally {
        listener.close();
      }
      const kept = await daemons.enter(settings);
      assert.equal(kept.opened?.trust.ownPeer.keyDigest, opened?.trust.ownPeer.keyDigest);
    });

    it('leaves only files that their owner alone can read', async () => {
      const address = await daemons.startHome();
      await daemons.enterByCode(daemons.settingsOf('worker', { main: address }));
      assert.deepEqual(readdirSync(join(daemons.stateOf('jetson', 'home'), 'nodes', 'worker-jetson-7602')).sort(), [
        'authority.crt',
        'node.crt',
        'node.key',
        'roster',
      ]);
      assert.equal(existsSync(authorityDirectory(daemons.stateOf('jetson', 'home'))), false);
    });
  });

  describe('once it is in', () => {
    const node = (stopped: string[]): RunningNode => ({
      address: '127.0.0.1:1',
      openCounts: () => ({}),
      components: () => [],
      stop: async () => void stopped.push('stopped'),
    });

    it('a removal ends the daemon with words, and it does not start again', async () => {
      const address = await daemons.startHome();
      const settings = daemons.settingsOf('worker', { main: address });
      const { opened } = await daemons.enterByCode(settings);
      assert.ok(opened !== null);
      const ends: OdmoeError[] = [];
      const stopped: string[] = [];
      let inside: EnteredCluster | null = null;
      const start = afterEntering(
        async (entered) => {
          inside = entered;
          return node(stopped);
        },
        () => 'Orin',
      );
      const abandoned = new AbortController().signal;
      const running = await start(
        settings,
        new Lines(),
        (error) => void ends.push(error),
        abandoned,
        new DaemonReport(),
      );
      await daemons.main?.desk.removeNode('worker-jetson-7602');
      const signed = daemons.main?.trust.signedRoster;
      assert.ok(signed !== undefined && signed !== null);
      (inside as EnteredCluster | null)?.opened?.trust.takeRoster(signed);
      assert.equal(ends[0]?.code, 'NODE_REMOVED');
      assert.match(
        ends[0]?.message ?? '',
        /node worker-jetson-7602 was removed from "home".*To come back: odmoe worker --rejoin/,
      );
      await running.stop();
      assert.deepEqual(stopped, ['stopped']);
      await assert.rejects(
        start(settings, new Lines(), () => undefined, abandoned, new DaemonReport()),
        { code: 'NODE_REMOVED' },
      );
    });
  });
});
