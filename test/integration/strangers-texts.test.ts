import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { odmoeCommand } from '../../cli/demo/daemon-process.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { NodeIdentity, StatusReply } from '../../shared/wire/messages.js';
import { emptyNodeStatus } from '../../shared/wire/node-status.js';
import type { RpcServer } from '../../shared/transport/transport.js';
import { startRpcServer } from '../wall.js';
import { packOf } from './harness/test-models.js';
import { plainIdentity } from '../unit/plain-identity.js';

const HOSTILE = 'x\u001b]0;owned\u0007\u009b2J\u202ey';
const SILENT: Logger = { error: () => undefined, warn: () => undefined, info: () => undefined, debug: () => undefined };
const NETWORK = { keepaliveIntervalMs: 500, keepaliveTimeoutMs: 700, executeTimeoutMs: 1000, reconnectDelayMs: 100 };
/** An identity without such characters. A node's own identity is refused if it has them; in main's report of other nodes they are accepted. */
const IDENTITY: NodeIdentity = plainIdentity({
  id: 'main',
  role: 'ROLE_MAIN',
  cluster: 'home',
  modelName: 'demo',
  packDigest: 'abc',
  bootId: 'boot',
});
const HOSTILE_IDENTITY = { ...IDENTITY, modelName: HOSTILE, device: HOSTILE, release: HOSTILE };
const STATUS: StatusReply = {
  nodes: [emptyNodeStatus(HOSTILE_IDENTITY)],
  placement: null,
  activeSequences: 0,
  queuedRequests: 0,
  requests: 0,
  tokens: 0,
  groupReason: HOSTILE,
  workerHops: [],
  passes: null,
  ownWorkerId: '',
  layerWaits: [],
  workerWaits: [],
  links: [],
  httpAddress: '',
  problems: [{ address: '10.0.0.9:7000', id: HOSTILE, code: 'NODE_REFUSED', message: HOSTILE }],
};

interface Ended {
  stdout: string;
  stderr: string;
}

async function odmoe(...words: string[]): Promise<Ended> {
  const [executable, ...rest] = odmoeCommand(words);
  const child = spawn(executable, rest, { stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => (ended.stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (ended.stderr += text));
  await new Promise((resolve) => child.once('close', resolve));
  return ended;
}

function assertClean({ stdout, stderr }: Ended, command: string): void {
  for (const text of [stdout, stderr]) {
    assert.doesNotMatch(text, /[^\P{Cc}\n\t]|[\u202a-\u202e\u2066-\u2069]/u, command);
  }
}

describe('texts of strangers', function () {
  this.timeout(60_000);
  let server: RpcServer;
  let main: string;
  let directory: string;

  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-strangers-'));
    server = await startRpcServer({
      host: '127.0.0.1',
      port: 0,
      network: NETWORK,
      log: SILENT,
      node: { identify: () => IDENTITY },
      cluster: {
        join: () => Promise.reject(new OdmoeError('NODE_REFUSED', HOSTILE)),
        status: async () => STATUS,
      },
      inference: {
        generate: async function* () {
          throw new OdmoeError('NO_WORKERS', HOSTILE);
        },
      },
    });
    main = server.address;
  });

  after(async () => {
    await server.stop();
    await rm(directory, { recursive: true, force: true });
  });

  it('reach no terminal as control codes, whichever command prints them', async () => {
    const reported = await Promise.all(
      [['status'], ['top'], ['doctor', '--timeout', '500'], ['prompt', 'hello']].map(
        async ([command = '', ...rest]) => ({
          command,
          ended: await odmoe(command, ...rest, '--main', main),
        }),
      ),
    );
    for (const { command, ended } of reported) {
      assertClean(ended, command);
      assert.match(ended.stdout + ended.stderr, /x\\x1b\]0;owned\\x07\\x9b2J\\u202ey/, command);
    }
  });

  it('are complete in JSON, which escapes their control characters', async () => {
    const ended = await odmoe('status', '--json', '--main', main);
    assertClean(ended, 'status --json');
    const { problems } = JSON.parse(ended.stdout) as { problems: { message: string }[] };
    assert.equal(problems[0]?.message, HOSTILE);
  });

  it('are cleaned by inspect when they come from the manifest of a pack', async () => {
    const pack = join(directory, 'pack');
    await cp(await packOf('demo'), pack, { recursive: true });
    const path = join(pack, 'manifest.json');
    const manifest = await readFile(path, 'utf8');
    await writeFile(path, manifest.replace(/"family": ?"[^"]*"/, `"family":${JSON.stringify(HOSTILE)}`));
    const ended = await odmoe('inspect', pack);
    assertClean(ended, 'inspect');
    assert.match(ended.stdout + ended.stderr, /x\\x1b/);
  });
});
