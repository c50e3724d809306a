import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DaemonReport } from '../../engine/daemon/daemon-report.js';
import { afterEntering, enterCluster, type EnteredCluster, obstacleTo } from '../../engine/daemon/enter-cluster.js';
import { knownAuthorities } from '../../engine/daemon/cluster-directories.js';
import { chooseMain, fittingMains, mainAt, type FoundMain } from '../../engine/daemon/find-cluster.js';
import type { RunningNode } from '../../engine/daemon/running-node.js';
import { authorityDirectory } from '../../engine/trust/authority-files.js';
import { createCluster } from '../../engine/trust/create-cluster.js';
import { OperatorService } from '../../main-node/enrolment/operator-service.js';
import { NOT_CONNECTED } from './stored-main.js';
import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { operatorSocketPath } from '../../shared/base/files/state-directory.js';
import { defaultClusterConfig } from '../../shared/settings/load-cluster-config.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { resolveNodeSettings } from '../../shared/settings/resolve-node-settings.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { RUNTIME } from '../wall.js';
import { Lines } from './log-lines.js';
import { operatorServices, startNewMain, StoredMain } from './stored-main.js';
import { plainIdentity } from './plain-identity.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { ENROLMENT_PATHS } from '../../engine/trust/enrolment-messages.js';
import { MovedRuntime } from './enrolment-main.js';
import { startRefusingMain } from './refusing-main.js';
import { startPlainMain } from './plain-main.js';

/** Long pauses pass at once, by its clocks. */
class PauseRuntime extends MovedRuntime {
  readonly pausesMs: number[] = [];

  override async sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    if (delayMs < 60_000) return super.sleep(delayMs, signal);
    this.pausesMs.push(delayMs);
    this.laterMs += delayMs;
  }
}

describe('the way of a daemon into its cluster', () => {
  let directory: string;
  let main: StoredMain | null;
  let said: string[];
  const leaves: (() => Promise<void>)[] = [];

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'odmoe-entering-'));
    main = null;
    said = [];
  });

  afterEach(async () => {
    await leaveAll();
    await main?.stop();
    rmSync(directory, { recursive: true, force: true });
  });

  /** The settings of a daemon on a host of its own. */
  function settingsOf(
    role: RoleSetting,
    flags: Parameters<typeof resolveNodeSettings>[2],
    host = 'jetson',
  ): NodeSettings {
    const here = { hostname: host, addresses: [], processId: 42, stateHome: join(directory, host) };
    return resolveNodeSettings(role, defaultClusterConfig(), { model: 'pack', ...flags }, here);
  }

  const stateOf = (host: string, cluster: string): string => join(directory, host, 'odmoe', cluster);

  async function enter(
    settings: NodeSettings,
    {
      variables = {},
      abandoned = new AbortController().signal,
      say = (text: string): void => void said.push(text),
      runtime = RUNTIME,
    } = {},
  ): Promise<EnteredCluster> {
    const log = new Lines();
    const context = { runtime, log, abandoned, say, device: () => 'Orin', variables };
    const entered = await enterCluster(settings, context);
    leaves.push(() => entered.leave());
    return entered;
  }

  /** Enters with the main that was started before ended. */
  async function enterAgain(settings: NodeSettings): Promise<EnteredCluster> {
    await leaveAll();
    return enter(settings);
  }

  /** The mains that entered have ended. */
  async function leaveAll(): Promise<void> {
    for (const leave of leaves.splice(0)) await leave();
  }

  /** Enters by a code, which the operator types. */
  function enterByCode(settings: NodeSettings): Promise<EnteredCluster> {
    return enter(settings, {
      say: (text) => {
        said.push(text);
        const code = /odmoe accept (\d{6})/.exec(text)?.[1];
        if (code !== undefined) void main?.desk.accept(code);
      },
    });
  }

  async function startHome(): Promise<string> {
    main = await startNewMain(stateOf('box', 'home'));
    return main.server.address;
  }

  async function token(role: 'worker' | 'shadow' = 'worker'): Promise<string> {
    assert.ok(main !== null);
    return (await main.desk.createToken({ role, uses: 1, lifeMs: 60_000 })).text;
  }

  describe('of main', () => {
    it('is plaintext on loopback, without ceremony', async () => {
      const entered = await enter(settingsOf('main', {}));
      assert.deepEqual([entered.settings.listenHost, entered.opened, said], ['127.0.0.1', null, []]);
      assert.equal(existsSync(join(directory, 'jetson')), false, 'no file is made');
    });

    it('makes the authority with --lan, once, and says where it lies', async () => {
      const settings = settingsOf('main', { cluster: 'home', lan: true });
      const first = await enter(settings);
      assert.equal(first.settings.listenHost, '0.0.0.0');
      assert.equal(first.opened?.trust.cluster, 'home');
      assert.match(
        said.join('\n'),
        /^Cluster "home" has an authority now: .*\/home\/authority \(back it up; who has it owns the cluster\)\. Words: \w+ \w+ \w+ \w+$/,
      );
      said = [];
      const left = join(settings.stateDirectory, 'authority.4242.partial');
      mkdirSync(left);
      const again = await enterAgain(settings);
      assert.deepEqual(said, []);
      assert.equal(existsSync(left), false, 'a crashed process has left a key there');
      assert.ok(again.opened?.trust.authority.equals(first.opened?.trust.authority ?? Buffer.alloc(0)));
      const plain = await enterAgain(settingsOf('main', { cluster: 'home' }));
      assert.equal(plain.settings.listenHost, '0.0.0.0', 'a cluster with an authority is served on every network');
      const given = await enterAgain(settingsOf('main', { cluster: 'home', host: '127.0.0.1' }));
      assert.equal(given.settings.listenHost, '127.0.0.1');
    });

    it('is refused off loopback without an authority, unless --insecure is said', async () => {
      await assert.rejects(enter(settingsOf('main', { host: '192.168.1.10' })), {
        code: 'CONFIG_INVALID',
        message:
          /listen on 192\.168\.1\.10, where other machines reach it, and "odmoe" has no authority.*--lan.*odmoe cluster init.*--insecure/,
      });
      const insecure = await enter(settingsOf('main', { host: '192.168.1.10', insecure: true }));
      assert.equal(insecure.opened, null);
      assert.equal((await enter(settingsOf('main', { insecure: true }))).settings.listenHost, '0.0.0.0');
      const both = await enter(settingsOf('main', { lan: true, insecure: true }));
      assert.equal(both.opened, null, '--insecure makes no authority');
    });

    it('is refused where another main of the cluster runs, also where both start at the same time', async () => {
      const refusal = {
        code: 'PORT_UNAVAILABLE',
        message: /main\.lock is locked: another main of this cluster runs here: stop it/,
      };
      const mains = Array.from({ length: 8 }, (_, number) =>
        enter(settingsOf('main', { cluster: 'home', id: `m${number}`, lan: true }, 'box')),
      );
      const entries = await Promise.allSettled(mains);
      assert.equal(entries.filter(({ status }) => status === 'fulfilled').length, 1);
      for (const entry of entries) {
        if (entry.status === 'rejected')
          assert.throws(() => {
            throw entry.reason;
          }, refusal);
      }
      const roster = (): Buffer => readFileSync(join(authorityDirectory(stateOf('box', 'home')), 'roster'));
      const before = roster();
      const second = settingsOf('main', { cluster: 'home', id: 'second' }, 'box');
      await assert.rejects(enter(second), refusal);
      assert.ok(roster().equals(before), 'a main that is refused changes nothing');
      await leaveAll();
      assert.ok((await enter(second)).opened !== null);
    });

    it('goes on with a new certificate where its own files are damaged, and nobody has to join again', async () => {
      const settings = settingsOf('main', { cluster: 'home', lan: true });
      const first = await enter(settings);
      const digest = first.opened?.trust.ownPeer.keyDigest;
      const nodeFiles = join(settings.stateDirectory, 'nodes', settings.id);
      for (const name of ['node.key', 'node.crt', 'authority.crt', 'roster']) {
        writeFileSync(join(nodeFiles, name), 'damaged');
        const again = await enterAgain(settings);
        assert.notEqual(again.opened?.trust.ownPeer.keyDigest, digest, name);
        assert.deepEqual(again.opened?.trust.authority, first.opened?.trust.authority);
      }
    });

    it('goes on without join tokens where their file is gone, and says what to do where one is damaged', async () => {
      const settings = settingsOf('main', { cluster: 'home', lan: true });
      await enter(settings);
      const path = join(authorityDirectory(settings.stateDirectory), 'tokens');
      writeFileSync(path, '{');
      await assert.rejects(enterAgain(settings), {
        code: 'STORAGE_FAILED',
        message: /tokens: .*remove the file: the join tokens are lost then, and odmoe token create makes new ones$/,
      });
      rmSync(path);
      assert.deepEqual((await enterAgain(settings)).opened?.authority?.tokens, { tokens: [] });
    });

    it("is not replaced by another role's --rejoin under its id", async () => {
      const settings = settingsOf('main', { cluster: 'home', lan: true });
      await enter(settings);
      await assert.rejects(enter(settingsOf('worker', { cluster: 'home', id: settings.id, rejoin: true })), {
        code: 'CONFIG_INVALID',
        message: 'main-jetson is the main of this host: give this worker another --id',
      });
      assert.ok(existsSync(join(settings.stateDirectory, 'nodes', settings.id, 'node.crt')));
    });

    it('makes no new authority in the place of one that was lost, as no machine would know it', async () => {
      const stateDirectory = stateOf('jetson', 'home');
      const lan = settingsOf('main', { cluster: 'home', lan: true });
      await enter(lan);
      await leaveAll();
      rmSync(authorityDirectory(stateDirectory), { recursive: true });
      const refusal = {
        code: 'CONFIG_INVALID',
        message:
          /main-jetson of this host has joined "home".*odmoe cluster restore FILE.*begin anew.*remove .*nodes\/main-jetson$/,
      };
      await assert.rejects(enterAgain(lan), refusal);
      await assert.rejects(enterAgain(settingsOf('main', { cluster: 'home' })), refusal);
      await assert.rejects(enterAgain(settingsOf('main', { cluster: 'home', id: 'other' })), refusal);
      await assert.rejects(createCluster(stateDirectory, 'home'), refusal);
      rmSync(join(stateDirectory, 'nodes', 'main-jetson'), { recursive: true });
      assert.ok((await enter(lan)).opened !== null);
    });

    it('is refused with --insecure where there is an authority', async () => {
      await createCluster(stateOf('jetson', 'odmoe'), 'odmoe');
      await assert.rejects(enter(settingsOf('main', { insecure: true })), {
        code: 'CONFIG_INVALID',
        message: /leave out --insecure/,
      });
    });
  });

  describe('of a worker', () => {
    it('is a code that the operator types, and no code is needed again', async () => {
      const address = await startHome();
      const entered = await enterByCode(settingsOf('worker', { main: address }));
      assert.deepEqual([entered.settings.cluster, entered.settings.listenHost], ['home', '0.0.0.0']);
      assert.equal(entered.settings.stateDirectory, stateOf('jetson', 'home'));
      const text = said.join('\n');
      assert.match(text, /^Found main of "home" at 127\.0\.0\.1:\d+\. This machine is not in the cluster yet\.$/m);
      assert.match(
        text,
        /^ {2}Code: \d{3} \d{3} {6}On main: odmoe accept \d{6} \(or type it on its page\)\. Waiting, 10 min/m,
      );
      assert.ok(text.includes(`joined "home" as worker-jetson-7602 (words: ${main?.desk.words ?? ''})`));
      await main?.stop();
      main = null;
      said = [];
      const plain = await enter(settingsOf('main', { cluster: 'home' }));
      assert.equal(plain.opened, null, "a worker that has joined elsewhere keeps no main from its host's loopback");
      const again = await enter(settingsOf('worker', {}));
      assert.deepEqual(
        [again.settings.cluster, said],
        ['home', []],
        'also without main, and without the name of the cluster',
      );
    });

    it('is a token: from the flag, a file or the environment, and not the second time', async () => {
      const main1 = await startHome();
      const path = join(directory, 'token');
      writeFileSync(path, `${await token()}\n`);
      await enter(settingsOf('worker', { main: main1, join: await token() }, 'a'));
      await enter(settingsOf('worker', { main: main1, joinFile: path, id: 'b' }, 'b'));
      const variables = { ODMOE_JOIN_TOKEN: await token('shadow') };
      await enter(settingsOf('shadow', { main: main1 }, 'c'), { variables });
      assert.equal(said.filter((text) => text.startsWith('joined "home"')).length, 3);
      assert.ok(!said.some((text) => text.includes('Code:')));
      const before = said.length;
      await enter(settingsOf('shadow', { main: main1 }, 'c'), { variables });
      assert.equal(said.length, before);
    });

    it('is a token that a service manager keeps for it, as long as that is there', async () => {
      const address = await startHome();
      const variables = { CREDENTIALS_DIRECTORY: directory };
      const settings = settingsOf('worker', { main: address }, 'd');
      writeFileSync(join(directory, 'join'), `${await token()}\n`);
      await enter(settings, { variables });
      assert.deepEqual(
        said.map((text) => text.slice(0, 13)),
        ['joined "home"'],
      );
      // The unit names this word for the time after joining, and without a token a code is shown.
      writeFileSync(join(directory, 'join'), 'used');
      const shown = new AbortController();
      const waiting = enter(settingsOf('worker', { main: address }, 'e'), {
        variables,
        abandoned: shown.signal,
        say: (text) => void (text.includes('odmoe accept') && shown.abort()),
      });
      await assert.rejects(waiting, { code: 'CANCELLED' });
      assert.ok(shown.signal.aborted);
    });

    it('ends in words where the token is not good', async () => {
      const address = await startHome();
      const good = await token();
      await assert.rejects(enter(settingsOf('worker', { main: address, join: good.slice(0, 60) })), {
        code: 'JOIN_TOKEN_INVALID',
        message: /cut short/,
      });
      await enter(settingsOf('worker', { main: address, join: good }, 'a'));
      await assert.rejects(enter(settingsOf('worker', { main: address, join: good, id: 'other' }, 'b')), {
        code: 'JOIN_TOKEN_INVALID',
        message: /used/,
      });
      await assert.rejects(enter(settingsOf('worker', { main: address, joinFile: join(directory, 'none') })), {
        code: 'CONFIG_INVALID',
      });
    });

    it("needs no code on main's own host: who can open the operator's socket is the operator", async () => {
      const stateDirectory = stateOf('box', 'home');
      await createCluster(stateDirectory, 'home');
      main = await StoredMain.start(stateDirectory, 'home', (desk) => ({
        operatorSocket: operatorSocketPath(stateDirectory),
        operator: new OperatorService(desk, NOT_CONNECTED, new Lines()),
      }));
      const entered = await enter(settingsOf('worker', {}, 'box'));
      assert.equal(entered.settings.cluster, 'home');
      assert.deepEqual(said.length, 1);
      assert.match(said[0] ?? '', /^joined "home"/);
    });

    it('is left to the user where several authorities answer, whose words it says once, and it goes on looking', async () => {
      const mainOf = (cluster: string): Promise<StoredMain> =>
        startNewMain(stateOf('box', cluster), cluster, operatorServices(stateOf('box', cluster)));
      main = await mainOf('home');
      const lab = await mainOf('lab');
      const abandon = new AbortController();
      setTimeout(() => abandon.abort(), 4000).unref();
      try {
        await assert.rejects(enter(settingsOf('worker', {}, 'box'), { abandoned: abandon.signal }), {
          code: 'CANCELLED',
        });
      } finally {
        await lab.stop();
      }
      const list = [
        `"home" at ${main.address}, words: ${main.desk.words}`,
        `"lab" at ${lab.address}, words: ${lab.desk.words}`,
      ].join('; ');
      assert.deepEqual(said, [
        `waiting for main: several clusters answer (${list}): compare the words with those that odmoe status shows on main, and say which one by --cluster, --main HOST:PORT, or give a token of it`,
      ]);
    });

    it('knows the authorities that it made, that its daemons joined, and of which its user is an operator', async () => {
      const address = await startHome();
      await enterByCode(settingsOf('worker', { main: address }));
      const lab = await startNewMain(stateOf('lab-box', 'lab'), 'lab');
      await lab.stop();
      const know = (host: string, operators: string): Promise<ReadonlySet<string>> =>
        knownAuthorities(stateOf(host, 'any'), operators);
      const none = stateOf('nobody', 'any');
      assert.deepEqual([...(await know('jetson', none))], [main?.desk.digest]);
      assert.deepEqual([...(await know('lab-box', none))], [lab.desk.digest]);
      assert.deepEqual([...(await know('nobody', stateOf('jetson', 'any')))], [main?.desk.digest]);
      rmSync(join(stateOf('lab-box', 'lab'), 'nodes'), { recursive: true });
      assert.deepEqual([...(await know('lab-box', none))], [lab.desk.digest]);
      writeFileSync(join(authorityDirectory(stateOf('lab-box', 'lab')), 'authority.crt'), 'damaged');
      assert.deepEqual([...(await know('lab-box', none))], [], 'files that cannot be read say nothing');
    });

    it('waits where it hears a main without authority, whom anybody may imitate, and ends where his address was given', () => {
      const heard = { address: '10.0.0.5:7600', cluster: 'home', authority: null, socketPath: null };
      const words = /main of "home" at 10\.0\.0\.5:7600 has no authority/;
      assert.match(obstacleTo(heard, settingsOf('worker', { cluster: 'home' })) ?? '', words);
      const given = settingsOf('worker', { cluster: 'home', main: heard.address });
      assert.throws(() => obstacleTo(heard, given), { code: 'CONFIG_INVALID', message: words });
    });

    it('says with --insecure that the main which it hears speaks TLS, and goes on', async () => {
      const stateDirectory = stateOf('box', 'home');
      main = await startNewMain(stateDirectory, 'home', operatorServices(stateDirectory));
      const settings = settingsOf('worker', { cluster: 'home', insecure: true }, 'box');
      assert.equal((await enter(settings)).opened, null);
      assert.deepEqual(said, [
        `main of "home" at ${main.address} speaks TLS and uses no worker that was told --insecure: leave that out`,
      ]);
    });

    it('waits where a worker answers at the address, with TLS or without, and says so', async () => {
      const address = await startHome();
      const network = {
        keepaliveIntervalMs: 500,
        keepaliveTimeoutMs: 700,
        executeTimeoutMs: 1000,
        reconnectDelayMs: 100,
      };
      const options = {
        host: '127.0.0.1',
        port: 0,
        network,
        log: new Lines(),
        node: { identify: () => plainIdentity() },
      };
      const { opened } = await enterByCode(settingsOf('worker', { main: address }));
      for (const trust of [null, opened?.trust ?? null]) {
        const worker = await new GrpcTransport(RUNTIME, null, trust).serve(options);
        const abandon = new AbortController();
        said = [];
        const say = (text: string): void => {
          said.push(text);
          abandon.abort();
        };
        const settings = settingsOf('worker', { main: worker.address, lan: true }, 'other');
        await assert.rejects(enter(settings, { abandoned: abandon.signal, say }), { code: 'CANCELLED' });
        await worker.stop();
        assert.deepEqual(said, [
          `waiting for main: the daemon at ${worker.address} lets no machines in: give main's address`,
        ]);
      }
    });

    it('is plaintext on loopback, without ceremony', async () => {
      const plain = await startPlainMain('odmoe');
      try {
        const entered = await enter(settingsOf('worker', { main: plain.address }));
        assert.deepEqual([entered.opened, entered.settings.listenHost, said], [null, '127.0.0.1', []]);
        const away = await enter(settingsOf('worker', { main: '127.0.0.1:1' }));
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
        await assert.rejects(enter(settingsOf('worker', open)), {
          code: 'CONFIG_INVALID',
          message: /has no authority that says who may join.*odmoe cluster init.*--insecure/,
        });
        assert.equal((await enter(settingsOf('worker', { ...open, insecure: true }))).opened, null);
      } finally {
        await plain.stop();
      }
    });

    it('is refused with --insecure where main speaks TLS', async () => {
      const address = await startHome();
      await assert.rejects(enter(settingsOf('worker', { main: address, insecure: true })), {
        code: 'TLS_MISMATCH',
        message: `main at ${address} speaks TLS and this worker was told --insecure: leave that out`,
      });
    });

    it('is a new code where main was started again while the first one waited', async () => {
      const address = await startHome();
      const restart = async (): Promise<void> => {
        const port = main?.server.port;
        await main?.stop();
        main = await StoredMain.start(stateOf('box', 'home'), 'home', () => ({}), port);
      };
      const codes: string[] = [];
      const entered = await enter(settingsOf('worker', { main: address }), {
        say: (text) => {
          said.push(text);
          const code = /odmoe accept (\d{6})/.exec(text)?.[1];
          if (code === undefined) return;
          codes.push(code);
          if (codes.length === 1) void restart();
          else void main?.desk.accept(code);
        },
      });
      assert.equal(entered.settings.cluster, 'home');
      assert.equal(codes.length, 2);
      assert.match(said.join('\n'), /main was started again, or .* knows this code no more; here is a new one/);
    });

    it('is another code after a pause, where a service manager runs the worker and its code was not typed', async () => {
      const address = await startHome();
      const runtime = new PauseRuntime();
      let codes = 0;
      const entered = await enter(settingsOf('worker', { main: address }), {
        runtime,
        variables: { NOTIFY_SOCKET: '/run/notify' },
        say: (text) => {
          said.push(text);
          const code = /odmoe accept (\d{6})/.exec(text)?.[1];
          if (code === undefined) return;
          codes += 1;
          const wrong = code === '000000' ? '000001' : '000000';
          const typed = codes === 1 ? [wrong, wrong, wrong] : [code];
          void Promise.allSettled(typed.map((each) => main?.desk.accept(each)));
        },
      });
      assert.equal(entered.settings.cluster, 'home');
      assert.deepEqual([codes, runtime.pausesMs], [2, [60_000]]);
      assert.match(
        said.join('\n'),
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
        const entering = enter(settingsOf('worker', { main: refusing.address }), {
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
      const address = await startHome();
      const abandon = new AbortController();
      const entering = enter(settingsOf('worker', { main: address }), {
        abandoned: abandon.signal,
        say: (text) => {
          said.push(text);
          if (/odmoe accept \d{6}/.test(text)) setTimeout(() => abandon.abort(), 50);
        },
      });
      await assert.rejects(entering, { code: 'CANCELLED' });
      assert.deepEqual(main?.desk.waitingMachines(), []);
      assert.equal(said.at(-1), 'stopped before this machine was let in; its code is good no more');
    });

    it('waits for main, and says so once', async () => {
      const abandon = new AbortController();
      const entering = enter(settingsOf('worker', { main: '127.0.0.1:1', lan: true }), { abandoned: abandon.signal });
      setTimeout(() => abandon.abort(), 2500).unref();
      await assert.rejects(entering, { code: 'CANCELLED' });
      assert.deepEqual(said, ['waiting for main: none answers at 127.0.0.1:1']);
    });

    it('waits for main also on loopback alone, where it has a token from anywhere', async () => {
      await startHome();
      const variables = { ODMOE_JOIN_TOKEN: await token() };
      const abandon = new AbortController();
      const settings = settingsOf('worker', { main: '127.0.0.1:1', host: '127.0.0.1', discovery: 'static' });
      const say = (text: string): void => {
        said.push(text);
        abandon.abort();
      };
      await assert.rejects(enter(settings, { variables, abandoned: abandon.signal, say }), { code: 'CANCELLED' });
      assert.deepEqual(said, ['waiting for main: none answers at 127.0.0.1:1']);
    });

    it('waits for main where an HTTP server answers at the address, and says so', async () => {
      const server = createHttpServer((_, response) => void response.end('page')).listen(0, '127.0.0.1');
      await once(server, 'listening');
      const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
      const abandon = new AbortController();
      const say = (text: string): void => {
        said.push(text);
        abandon.abort();
      };
      const entering = enter(settingsOf('worker', { main: address, lan: true }), { abandoned: abandon.signal, say });
      await assert.rejects(entering, { code: 'CANCELLED' });
      server.close();
      assert.deepEqual(said, [
        `waiting for main: what answers at ${address} speaks HTTP and is no port for machines (main's page and HTTP API are such): give main's address for machines, usually port 7600`,
      ]);
    });

    it("ends where main's address was given and the token is of another cluster, and names both authorities", async () => {
      const address = await startHome();
      const lab = await startNewMain(stateOf('lab-box', 'lab'), 'lab');
      try {
        const { text } = await lab.desk.createToken({ role: 'worker', uses: 1, lifeMs: 60_000 });
        const [here, there] = [main?.desk.digest.slice(0, 16), lab.desk.digest.slice(0, 16)];
        await assert.rejects(enter(settingsOf('worker', { main: address, join: text })), {
          code: 'JOIN_TOKEN_INVALID',
          message: `the token is of the authority ${there}, and those that answer are of others ("home" at ${address} of ${here}): give --main HOST:PORT of the main that made the token, or a token of one of these`,
        });
      } finally {
        await lab.stop();
      }
    });

    it('ends where the token is of another cluster than the named one, and names both', async () => {
      const stateDirectory = stateOf('box', 'home');
      main = await startNewMain(stateDirectory, 'home', operatorServices(stateDirectory));
      const join = await token();
      for (const flags of [{}, { main: main.address }]) {
        await assert.rejects(enter(settingsOf('worker', { ...flags, cluster: 'lab', join, lan: true }, 'box')), {
          code: 'JOIN_TOKEN_INVALID',
          message: `the token is of "home" (main at ${main.address}), and the cluster is to be "lab": correct --cluster, or give a token of "lab"`,
        });
      }
    });

    it('is closed to a removed worker until it joins again with a new key', async () => {
      const address = await startHome();
      const settings = settingsOf('worker', { main: address });
      await enterByCode(settings);
      await main?.desk.removeNode('worker-jetson-7602');
      const entered = await enterByCode({ ...settings, joining: { ...settings.joining, rejoin: true } });
      assert.equal(entered.opened?.trust.ownRemoval, null);
      assert.equal(main?.desk.listNodes().filter(({ id }) => id === 'worker-jetson-7602').length, 2);
    });

    it('keeps its key when it is to join again while it runs', async () => {
      const address = await startHome();
      const settings = settingsOf('worker', { main: address, host: '127.0.0.1', port: 0 });
      const { opened } = await enterByCode(settings);
      const listener = createServer().listen(0, '127.0.0.1');
      await once(listener, 'listening');
      const { port } = listener.address() as AddressInfo;
      const again = { ...settings, listenPort: port, joining: { ...settings.joining, rejoin: true } };
      try {
        await assert.rejects(enter(again), {
          code: 'PORT_UNAVAILABLE',
          message: /if it is this daemon, stop it first/,
        });
      } finally {
        listener.close();
      }
      const kept = await enter(settings);
      assert.equal(kept.opened?.trust.ownPeer.keyDigest, opened?.trust.ownPeer.keyDigest);
    });

    it('leaves only files that their owner alone can read', async () => {
      const address = await startHome();
      await enterByCode(settingsOf('worker', { main: address }));
      assert.deepEqual(readdirSync(join(stateOf('jetson', 'home'), 'nodes', 'worker-jetson-7602')).sort(), [
        'authority.crt',
        'node.crt',
        'node.key',
        'roster',
      ]);
      assert.equal(existsSync(authorityDirectory(stateOf('jetson', 'home'))), false);
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
      const address = await startHome();
      const settings = settingsOf('worker', { main: address });
      const { opened } = await enterByCode(settings);
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
      await main?.desk.removeNode('worker-jetson-7602');
      const signed = main?.trust.signedRoster;
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

describe('the choice of the main to join', () => {
  const main = (cluster: string, digest: string | null, socketPath: string | null = null): FoundMain => ({
    address: `${cluster}:7600`,
    cluster,
    authority: digest === null ? null : { cluster, digest, certificate: Buffer.alloc(0) },
    socketPath,
  });
  const any = { cluster: null, authorityDigest: null };
  const home = { cluster: 'home', authorityDigest: null };
  const none = new Set<string>();

  it('is the only one, by whichever ways it was found', () => {
    assert.equal(chooseMain(fittingMains([], any), none), null);
    const bySocket = main('home', 'aa', '/s');
    assert.equal(chooseMain(fittingMains([main('home', 'aa'), bySocket], any), none), bySocket);
  });

  it('is that of the named cluster, or of the authority of the token', () => {
    const mains = [main('home', 'aa'), main('lab', 'bb')];
    assert.deepEqual(fittingMains(mains, { cluster: 'lab', authorityDigest: null }), mains.slice(1));
    assert.deepEqual(fittingMains(mains, { cluster: null, authorityDigest: 'aa' }), mains.slice(0, 1));
    assert.deepEqual(fittingMains(mains, { cluster: 'lab', authorityDigest: 'aa' }), []);
  });

  it('is of several the one whose authority this host knows, beside a stranger of the same name', () => {
    const known = main('home', 'aa');
    const mains = [main('home', 'bb'), known, main('home', null)];
    assert.equal(chooseMain(fittingMains(mains, home), new Set(['aa'])), known);
    const own = main('home', 'cc', '/s');
    assert.equal(chooseMain(fittingMains([...mains, own], home), none), own);
  });

  it('is left to the user where he knows none of several, or more than one', () => {
    assert.equal(chooseMain(fittingMains([main('home', 'aa'), main('home', 'bb')], home), none), null);
    assert.equal(chooseMain(fittingMains([main('home', 'aa'), main('home', null)], home), none), null);
    const mains = [main('home', 'aa'), main('lab', 'bb')];
    assert.equal(chooseMain(fittingMains(mains, any), none), null);
    assert.equal(chooseMain(fittingMains(mains, any), new Set(['aa', 'bb'])), null);
  });
});
