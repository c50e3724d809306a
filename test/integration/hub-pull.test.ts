import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { odmoeCommand } from '../../cli/demo/daemon-process.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { SmallHub, TOKEN } from '../unit/small-hub.js';
import { tinyTensors, withTemporaryDirectory, writeTinyCheckpoint } from '../unit/tiny-checkpoint.js';
import { directoryDigests } from '../unit/tiny-pack.js';
import { waitUntil } from './harness/wait-until.js';

const COMMIT = '0123456789abcdef0123456789abcdef01234567';
const ID = 'owner/model';
const PACK = 'owner--model--0123456789ab';
const FILES = 4;

interface Ended {
  status: number;
  stdout: string;
  stderr: string;
}

interface Place {
  hub: SmallHub;
  /** A home of its own: nothing of the machine is read. */
  home: string;
  packs: string;
  checkpoint: string;
  odmoe: (words: readonly string[], variables?: Record<string, string>) => Promise<Ended>;
}

function filesOf(directory: string): Map<string, Uint8Array> {
  return new Map(readdirSync(directory).map((name) => [name, readFileSync(join(directory, name))]));
}

async function withPlace(use: (place: Place) => Promise<void>): Promise<void> {
  await withTemporaryDirectory(async (home) => {
    const hub = await SmallHub.start();
    try {
      const checkpoint = join(home, 'checkpoint');
      await writeTinyCheckpoint(checkpoint, tinyTensors(), { shards: FILES });
      hub.repositories.set(ID, {
        commit: COMMIT,
        files: filesOf(checkpoint),
        isLarge: (path) => path.endsWith('.safetensors'),
      });
      const odmoe: Place['odmoe'] = (words, variables = {}) => {
        const [executable, ...rest] = odmoeCommand(words);
        const { PATH = '', ODMOE_ADDON } = process.env;
        const own = { PATH, HOME: home, XDG_DATA_HOME: join(home, 'data'), HF_ENDPOINT: hub.endpoint };
        const env = { ...own, ...(ODMOE_ADDON !== undefined && { ODMOE_ADDON }), ...variables };
        return new Promise((resolve) => {
          execFile(executable, rest, { env, timeout: 60_000 }, (error, stdout, stderr) => {
            resolve({ status: error === null ? 0 : Number(error.code ?? -1), stdout, stderr });
          });
        });
      };
      await use({ hub, home, checkpoint, packs: join(home, 'data', 'odmoe', 'packs'), odmoe });
    } finally {
      await hub.stop();
    }
  });
}

describe('odmoe pull', function () {
  this.timeout(120_000);

  it('makes the same pack as odmoe pack of the checkpoint, leaves nothing else, and knows it the next time', async () => {
    await withPlace(async ({ hub, home, packs, checkpoint, odmoe }) => {
      hub.faults.push({ kind: 'cut', afterBytes: 500 }, { kind: 'expired' });
      const pulled = await odmoe(['pull', ID, '--json']);
      assert.equal(pulled.status, 0, pulled.stderr);
      const { directory, name, from } = JSON.parse(pulled.stdout) as Record<string, string>;
      assert.deepEqual([directory, name, from], [join(packs, PACK), ID, 'hub']);
      assert.deepEqual(readdirSync(packs), [PACK]);
      const plain = join(home, 'plain');
      const packed = await odmoe(['pack', checkpoint, plain, '--name', ID]);
      assert.equal(packed.status, 0, packed.stderr);
      assert.deepEqual(await directoryDigests(join(packs, PACK)), await directoryDigests(plain));
      const before = hub.transfers.length;
      const again = await odmoe(['pull', ID]);
      assert.equal(again.status, 0, again.stderr);
      assert.match(again.stdout, /from a pack that was here/);
      assert.equal(hub.transfers.length, before);
      const listed = await odmoe(['models', '--here', '--json']);
      const [only, ...others] = (JSON.parse(listed.stdout) as { packs: Record<string, unknown>[] }).packs;
      assert.deepEqual([only?.['name'], only?.['state'], only?.['entry'], others], [ID, 'whole', PACK, []]);
      const removed = await odmoe(['rm', ID]);
      assert.equal(removed.status, 0, removed.stderr);
      assert.match(removed.stdout, /deleted; .* are free again/);
      assert.deepEqual(readdirSync(packs), []);
    });
  });

  it('says what it would do, and does nothing, with --dry-run', async () => {
    await withPlace(async ({ packs, odmoe }) => {
      const words = await odmoe(['pull', ID, '--dry-run']);
      assert.equal(words.status, 0, words.stderr);
      assert.match(words.stdout, /^owner\/model: .* to download; a pack of about .* on the disk while it is made\n$/);
      const plan = await odmoe(['pull', ID, '--dry-run', '--json']);
      assert.equal(plan.status, 0, plan.stderr);
      const {
        download_bytes: download,
        disk_needed_bytes: disk,
        ...rest
      } = JSON.parse(plan.stdout) as Record<string, unknown>;
      assert.deepEqual(rest, { model: ID, from: 'hub', directory: join(packs, PACK) });
      assert.ok(Number(download) > 0 && Number(disk) > 0, plan.stdout);
      assert.deepEqual(readdirSync(packs), []);
    });
  });

  it('continues where it had to give up', async () => {
    await withPlace(async ({ hub, packs, odmoe }) => {
      // The connection is refused for good when two files have come.
      const refused = { kind: 'status', status: 404 } as const;
      const whole = { kind: 'whole' } as const;
      hub.faults.push(...Array.from({ length: FILES + 2 }, () => whole), ...Array.from({ length: 10 }, () => refused));
      const first = await odmoe(['pull', ID]);
      assert.notEqual(first.status, 0, first.stdout);
      assert.ok(existsSync(join(packs, `${PACK}.pulling`)));
      hub.faults.length = 0;
      const before = hub.transfers.length;
      const second = await odmoe(['pull', ID]);
      assert.equal(second.status, 0, second.stderr);
      assert.ok(hub.transfers.length - before <= FILES + 2, 'headers, and the two files that were missing');
      assert.deepEqual(readdirSync(packs), [PACK]);
    });
  });

  it('takes a checkpoint from the cache of the hub, and leaves it there', async () => {
    await withPlace(async ({ hub, home, packs, checkpoint, odmoe }) => {
      const repository = join(home, 'cache', 'hub', 'models--owner--model');
      mkdirSync(join(repository, 'refs'), { recursive: true });
      writeFileSync(join(repository, 'refs', 'main'), COMMIT);
      cpSync(join(packageRoot(), 'models', 'demo', 'tokenizer.json'), join(checkpoint, 'tokenizer.json'));
      cpSync(checkpoint, join(repository, 'snapshots', COMMIT), { recursive: true });
      for (const offline of ['1', '0']) {
        const place = join(packs, offline);
        const pulled = await odmoe(['pull', ID, '--packs', place], {
          HF_HOME: join(home, 'cache'),
          HF_HUB_OFFLINE: offline,
        });
        assert.equal(pulled.status, 0, pulled.stderr);
        assert.match(pulled.stdout, /nothing to download[^]*the hub's own cache, which stays/);
        assert.deepEqual(readdirSync(place), [PACK]);
      }
      assert.equal(hub.transfers.length, 0);
      assert.equal(readdirSync(join(repository, 'snapshots', COMMIT)).length, readdirSync(checkpoint).length);
    });
  });

  it('makes a pack of the GGUF file that is named, all its parts, and leaves nothing else', async () => {
    await withPlace(async ({ hub, home, packs, odmoe }) => {
      const fixture = join(packageRoot(), 'test', 'fixtures', 'formats', 'gguf-qwen3moe-bf16-split');
      const stem = 'qwen3moe-bf16-split';
      const files = new Map([...filesOf(fixture)].map(([name, bytes]) => [`BF16/${name}`, bytes]));
      hub.repositories.set('owner/gguf', { commit: COMMIT, files, isLarge: (path) => path.endsWith('.gguf') });
      const pulled = await odmoe(['pull', `owner/gguf:BF16/${stem}-00003-of-00003.gguf`, '--json']);
      assert.equal(pulled.status, 0, pulled.stderr);
      const entry = `owner--gguf--0123456789ab--BF16--${stem}-of-00003`;
      const { directory, name } = JSON.parse(pulled.stdout) as Record<string, string>;
      assert.deepEqual([directory, name], [join(packs, entry), `owner/gguf:BF16/${stem}`]);
      assert.deepEqual(readdirSync(packs), [entry]);
      const plain = join(home, 'plain');
      const packed = await odmoe(['pack', join(fixture, `${stem}-00001-of-00003.gguf`), plain, '--name', name ?? '']);
      assert.equal(packed.status, 0, packed.stderr);
      assert.deepEqual(await directoryDigests(join(packs, entry)), await directoryDigests(plain));
    });
  });

  it('refuses in words what it cannot get, downloads nothing of it, and shows no token', async () => {
    await withPlace(async ({ hub, packs, odmoe }) => {
      const files = new Map<string, Uint8Array>([['model-Q4_K_M.gguf', Buffer.from('GGUF')]]);
      hub.repositories.set('owner/gguf', { commit: COMMIT, files });
      const { files: whole } = hub.repositories.get(ID) ?? { files };
      hub.repositories.set('owner/gated', { commit: COMMIT, files: whole, access: 'gated' });
      const config = Buffer.from('{"architectures": ["BertModel"], "model_type": "bert"}');
      hub.repositories.set('owner/bert', { commit: COMMIT, files: new Map([...whole, ['config.json', config]]) });
      const cases: [string, number, RegExp][] = [
        ['owner/gguf', 2, /odmoe pull owner\/gguf:model-Q4_K_M\.gguf \[USAGE\]/],
        ['owner/gguf:Q4_K_M', 3, /it has model-Q4_K_M\.gguf.*\[MODEL_NOT_FOUND\]/],
        ['owner/none', 3, /no such model, or it is private.*\[MODEL_NOT_FOUND\]/],
        ['owner/gated', 2, /accept its terms.*\[HUB_REFUSED\]/],
        ['owner/bert', 3, /^odmoe: owner\/bert: config\.json: BertModel names no experts.*\[MODEL_UNSUPPORTED\]/m],
        ['./here', 2, /is no name of a model on the hub.*\[USAGE\]/],
      ];
      for (const [name, status, words] of cases) {
        const ended = await odmoe(['pull', name], { HF_TOKEN: 'hf_wrong' });
        assert.equal(ended.status, status, ended.stderr);
        assert.match(ended.stderr, words);
        assert.ok(!ended.stderr.includes('hf_wrong'));
        assert.deepEqual(
          existsSync(packs) ? readdirSync(packs) : [],
          [],
          'nothing that could be continued has arrived',
        );
      }
      assert.ok(!hub.transfers.some(({ path }) => path.includes('gated')));
      const known = await odmoe(['pull', 'owner/gated'], { HF_TOKEN: TOKEN });
      assert.equal(known.status, 0, known.stderr);
      assert.ok(!`${known.stdout}${known.stderr}`.includes(TOKEN));
      const stored = readdirSync(packs, { recursive: true, encoding: 'utf8' });
      assert.ok(stored.includes('owner--gated--0123456789ab'));
      const offline = await odmoe(['pull', 'owner/other'], { HF_HUB_OFFLINE: '1' });
      assert.match(offline.stderr, /HF_HUB_OFFLINE is set.*\[HUB_UNAVAILABLE\]/);
    });
  });
});

describe('odmoe run', function () {
  this.timeout(120_000);

  it('says what it would do before it downloads weights, and asks where it can', async () => {
    await withPlace(async ({ hub, packs, odmoe }) => {
      const plan = await odmoe(['run', ID, '--dry-run', '--json', '--workers', '2']);
      assert.equal(plan.status, 0, plan.stderr);
      const object = JSON.parse(plan.stdout) as Record<string, unknown>;
      assert.equal(object['from'], 'hub');
      assert.equal(object['problem'], null);
      assert.deepEqual(object['machines'], { workers: 2, has_shadow: false, source: 'asked', boxes: [] });
      for (const figure of ['tokens_per_s', 'needed_bytes', 'memory_bytes', 'disk_needed_bytes', 'download_bytes']) {
        assert.ok(Number(object[figure]) > 0, figure);
      }
      const words = await odmoe(['run', ID, '--dry-run']);
      assert.equal(words.status, 0, words.stderr);
      assert.match(words.stdout, /to download[^]*no other machine is in the cluster yet[^]*tokens\/s/);
      const seen = hub.requests.length;
      const unasked = await odmoe(['run', ID]);
      assert.equal(unasked.status, 2);
      assert.match(unasked.stderr, /nobody can be asked.*give --yes/);
      assert.equal(hub.requests.length, seen, 'who cannot answer does not wait for the hub');
      const wrong = await odmoe(['run', ID, '--yes', '--no-such-flag']);
      assert.equal(wrong.status, 2);
      assert.match(wrong.stderr, /no-such-flag/);
      const small = await odmoe(['run', ID, '--yes', '--memory-budget', '100']);
      assert.equal(small.status, 3);
      assert.match(small.stderr, /main needs .* of memory.*\[DEVICE_OUT_OF_MEMORY\]/);
      assert.deepEqual(readdirSync(packs), [], 'nothing that could be continued has arrived');
      assert.ok(hub.transfers.length > 0, 'headers were read');
    });
  });

  it('downloads, packs and serves, answers, and ends main with itself', async () => {
    await withPlace(async ({ hub, home, odmoe }) => {
      const demo = join(packageRoot(), 'models', 'demo');
      const isLarge = (path: string): boolean => path.endsWith('.safetensors');
      hub.repositories.set('owner/demo', { commit: COMMIT, files: filesOf(demo), isLarge });
      const [executable, ...rest] = odmoeCommand(['run', 'owner/demo', '--yes', '--device', 'cpu', '--threads', '1']);
      const where = ['--host', '127.0.0.1', '--port', '0', '--http', '127.0.0.1:0', '--discovery', 'static'];
      const env = { ...process.env, HOME: home, XDG_STATE_HOME: home, XDG_DATA_HOME: home, HF_ENDPOINT: hub.endpoint };
      const child = spawn(executable, [...rest, ...where], { env, stdio: ['ignore', 'pipe', 'pipe'] });
      let said = '';
      for (const output of [child.stdout, child.stderr]) output.on('data', (data: Buffer) => (said += data.toString()));
      const ended = new Promise<number | null>((resolve) => child.on('close', resolve));
      const page = (): string | undefined => /http:\/\/127\.0\.0\.1:\d+/.exec(said.replaceAll(hub.endpoint, ''))?.[0];
      try {
        await waitUntil(
          () => `main says its page:\n${said}`,
          () => page() !== undefined,
        );
        const body = JSON.stringify({ model: 'owner/demo', prompt: 'Once upon', max_tokens: 4, temperature: 0 });
        const headers = { 'content-type': 'application/json' };
        const reply = await fetch(`${page()}/v1/completions`, { method: 'POST', headers, body });
        const { choices } = (await reply.json()) as { choices?: { text: string }[] };
        assert.ok((choices?.[0]?.text.length ?? 0) > 0, said);
        const data = { XDG_DATA_HOME: home };
        const refused = await odmoe(['rm', 'owner/demo'], data);
        assert.equal(refused.status, 2, refused.stdout);
        assert.match(refused.stderr, /a main, shadow or worker of this machine uses it; stop that daemon first/);
        child.kill('SIGTERM');
        assert.equal(await ended, 0, said);
        const removed = await odmoe(['rm', 'owner/demo'], data);
        assert.equal(removed.status, 0, removed.stderr);
      } finally {
        child.kill('SIGKILL');
        await ended;
      }
    });
  });
});
