/**
 * One Saturday: main and three workers, each on a box of its own, from the first start to a reboot, an update and a pulled cable, while two
 * answers run. Each step is a line with the time since the start.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { EmulatedLan } from '../../../../bench/peers/emulated-lan.js';
import { NEWEST_PROTOCOL_VARIABLE } from '../../../../engine/environment/node-environment.js';
import type { RoleSetting } from '../../../../shared/settings/setting-choices.js';
import { NEWEST_PROTOCOL } from '../../../../shared/wire/limits.js';
import { waitUntil } from '../../../integration/harness/wait-until.js';
import { RunningAnswer } from './answer.js';
import { Box } from './box.js';

const CLUSTER = 'home';
const PACK = '~/packs/demo';
const BOX_NAMES = ['pc', 'jetson-1', 'jetson-2', 'jetson-3'];
/** Each layer of a token takes a round trip at least, so that the answers last longer than all that happens meanwhile, however fast this machine is. */
const ROUND_TRIP_US = 8000;
const RATE_MBIT_PER_S = 1000;
const PROMPT = 'Tell me a long story about a fox.';
const LENGTH = ['--max-tokens', '300', '--ignore-eos'];
const SAMPLING = ['--temperature', '0.8', '--seed', '7'];
/** As JSON the sampled answer has its tokens, and how likely each was. */
const SAMPLED = [...LENGTH, ...SAMPLING, '--logprobs', '1', '--json'];

interface SampledAnswer {
  text: string;
  token_ids: number[];
  logprobs: unknown;
}

interface NodeRow {
  id: string;
  boot_id: string;
  newest_protocol: number;
  executions: number;
}

export class Saturday {
  private readonly startedAt = performance.now();
  private readonly boxes: readonly Box[];
  private ended: Promise<void> | null = null;

  private constructor(
    private readonly lan: EmulatedLan,
    private readonly directory: string,
    private readonly say: (line: string) => void,
  ) {
    this.boxes = lan.hosts.map((host, index) => new Box(BOX_NAMES[index] ?? '', host, directory));
  }

  /** Four boxes on a switch. Rejects with USAGE where this machine cannot make them. */
  static async start(say: (line: string) => void, signal: AbortSignal): Promise<Saturday> {
    const directory = mkdtempSync(join(tmpdir(), 'odmoe-saturday-'));
    try {
      const wanted = { hosts: BOX_NAMES.length, rateMbitPerS: RATE_MBIT_PER_S, roundTripUs: ROUND_TRIP_US, directory };
      return new Saturday(await EmulatedLan.start(wanted, signal), directory, say);
    } catch (thrown) {
      rmSync(directory, { recursive: true, force: true });
      throw thrown;
    }
  }

  /** Ends all processes on the boxes, and removes the boxes. It may be called again. */
  end(): Promise<void> {
    this.ended ??= this.remove();
    return this.ended;
  }

  private async remove(): Promise<void> {
    await Promise.all(this.boxes.map((box) => box.cutPower()));
    await this.lan.stop();
    rmSync(this.directory, { recursive: true, force: true });
  }

  /** What the daemons have written. */
  journals(): string {
    return this.boxes.map(({ name, journal }) => `--- ${name}\n${journal}`).join('\n');
  }

  /** The whole day. Rejects where something is not as it should be. */
  async run(): Promise<void> {
    const [pc, ...jetsons] = this.boxes as [Box, Box, Box, Box];
    await this.startMain(pc);
    for (const jetson of jetsons) await this.pair(pc, jetson);
    await this.untilPlaced(pc, jetsons.length);
    await this.command(pc, ['status']);
    const answers = await this.ask(pc);
    const [greedy] = answers;
    const [first, second, third] = jetsons;
    await this.reboot(pc, first);
    await this.showGoingOn(greedy, 'after the reboot');
    await this.update(pc, second);
    await this.showGoingOn(greedy, 'after the update');
    await this.pullCable(pc, third);
    await this.showGoingOn(greedy, 'without the cable');
    await this.compare(pc, answers);
  }

  private async showGoingOn(answer: RunningAnswer, when: string): Promise<void> {
    await answer.goesOn(when);
    this.note(`the answer goes on: "... ${lastWords(answer.soFar)}"`);
  }

  private async startMain(pc: Box): Promise<void> {
    await this.command(pc, ['pack', 'models/demo', PACK]);
    await this.startService(pc, 'main', ['--lan', '--model', PACK]);
    await waitUntil('main listens', () => pc.journal.includes('listening on'));
    this.show(pc, pc.journal);
  }

  /** Installs the daemon as a service, and starts it by the command of its unit. */
  private async startService(box: Box, role: RoleSetting, flags: readonly string[]): Promise<void> {
    const daemonFlags = ['--cluster', CLUSTER, ...flags];
    await box.installService(role, daemonFlags);
    this.note(`${box.name}$ odmoe service install ${role} --user -- ${daemonFlags.join(' ')}`);
    box.startService();
  }

  /** Lets the box in by the code that it shows. */
  private async pair(pc: Box, box: Box): Promise<void> {
    await this.startService(box, 'worker', []);
    const shown = (): string | undefined => /odmoe accept (\d{6})/.exec(box.journal)?.[1];
    await waitUntil(`${box.name} shows a code`, () => shown() !== undefined);
    this.show(box, box.journal);
    const accepted = await this.command(pc, ['accept', shown() ?? '']);
    const words = /words: (.*)/.exec(accepted)?.[1] ?? 'no words';
    await waitUntil(`${box.name} has joined`, () => box.journal.includes('joined "home"'));
    assert.ok(box.journal.includes(words), `${box.name} shows other words than main (${words}):\n${box.journal}`);
  }

  private async untilPlaced(pc: Box, workers: number): Promise<void> {
    await waitUntil('main has placed all workers', async () => {
      const { placement } = JSON.parse(await pc.odmoe(['status', '--json'])) as {
        placement: { groups: { worker_ids: string[] }[] } | null;
      };
      return placement?.groups.flatMap((group) => group.worker_ids).length === workers;
    });
  }

  /** A greedy answer and a sampled one, which have begun. */
  private async ask(pc: Box): Promise<[RunningAnswer, RunningAnswer]> {
    this.note(`pc$ odmoe prompt "${PROMPT}"; meanwhile the same with ${SAMPLING.join(' ')}`);
    const greedy = RunningAnswer.of(pc, [PROMPT, ...LENGTH]);
    const sampled = RunningAnswer.of(pc, [PROMPT, ...SAMPLED]);
    await greedy.goesOn('when it begins');
    return [greedy, sampled];
  }

  private async reboot(pc: Box, box: Box): Promise<void> {
    const before = await this.nodeOf(pc, box);
    box.unplug();
    await box.cutPower();
    this.note(`${box.name}: power cut; kill -9 for all its processes, and its link is down`);
    await this.untilMissed(pc, box);
    box.plug();
    box.startService();
    this.note(`${box.name}: boots; the command of its unit starts the worker`);
    await this.untilUsed(pc, box, before);
  }

  private async update(pc: Box, box: Box): Promise<void> {
    const before = await this.nodeOf(pc, box);
    await this.command(pc, ['drain', before?.id ?? box.name]);
    const status = await box.stopService();
    assert.equal(status, 0, box.journal);
    this.note(`${box.name}: systemctl stop; exit status ${status}`);
    box.startService({ [NEWEST_PROTOCOL_VARIABLE]: String(NEWEST_PROTOCOL + 1) });
    this.note(`${box.name}: systemctl start; it is the next release, whose newest protocol is ${NEWEST_PROTOCOL + 1}`);
    const after = await this.untilUsed(pc, box, before);
    assert.equal(after.newest_protocol, NEWEST_PROTOCOL + 1);
  }

  private async pullCable(pc: Box, box: Box): Promise<void> {
    box.unplug();
    this.note(`${box.name}: its cable is pulled`);
    await this.untilMissed(pc, box);
    await this.command(pc, ['status']);
  }

  private async untilMissed(pc: Box, box: Box): Promise<void> {
    await waitUntil(`main misses ${box.name}`, async () => (await this.nodeOf(pc, box)) === undefined);
    const lost = pc.journal.split('\n').filter((line) => line.includes('worker lost') && line.includes(box.name));
    this.show(pc, lost.at(-1) ?? '');
  }

  /** Resolves when main has experts run by the box since its new start. */
  private async untilUsed(pc: Box, box: Box, before: NodeRow | undefined): Promise<NodeRow> {
    let now: NodeRow | undefined;
    await waitUntil(`main uses ${box.name} again`, async () => {
      now = await this.nodeOf(pc, box);
      return now !== undefined && now.boot_id !== before?.boot_id && now.executions > 0;
    });
    assert.ok(now !== undefined);
    this.note(`${box.name}: main uses it again; nobody typed a code`);
    return now;
  }

  private async nodeOf(pc: Box, box: Box): Promise<NodeRow | undefined> {
    const { nodes } = JSON.parse(await pc.odmoe(['status', '--json'])) as { nodes: NodeRow[] };
    return nodes.find(({ id }) => id.startsWith(`worker-${box.name}-`));
  }

  /** Both answers have, to the bit, what one process with the whole model answers. */
  private async compare(pc: Box, [greedy, sampled]: readonly [RunningAnswer, RunningAnswer]): Promise<void> {
    const [text, json] = await Promise.all([greedy.whole(), sampled.whole()]);
    this.note('both answers have ended; one process with the whole model answers the same prompt:');
    assert.equal(text, await this.command(pc, ['generate', PACK, PROMPT, ...LENGTH], 'hidden'));
    const alone = await this.command(pc, ['generate', PACK, PROMPT, ...SAMPLED], 'hidden');
    const [ours, theirs] = [JSON.parse(json), JSON.parse(alone)] as [SampledAnswer, SampledAnswer];
    for (const key of ['text', 'token_ids', 'logprobs'] as const) assert.deepEqual(ours[key], theirs[key], key);
    const count = ours.token_ids.length;
    this.note(
      `equal to the bit: the text of the first answer; text, ${count} tokens and their probabilities of the second`,
    );
  }

  private async command(box: Box, words: readonly string[], output: 'shown' | 'hidden' = 'shown'): Promise<string> {
    const line = words.map((word) => (word.includes(' ') ? `"${word}"` : word)).join(' ');
    this.note(`${box.name}$ odmoe ${line}`);
    const text = await box.odmoe(words.map((word) => word.replace(/^~/, box.home)));
    if (output === 'shown') this.show(box, text);
    return text;
  }

  private note(text: string): void {
    const seconds = ((performance.now() - this.startedAt) / 1000).toFixed(1);
    this.say(`${seconds.padStart(5)} s  ${text}`);
  }

  /** Lines of a box, with its home as the shell writes it. */
  private show(box: Box, output: string): void {
    for (const line of output.trimEnd().replaceAll(box.home, '~').split('\n')) this.say(`         ${line}`.trimEnd());
  }
}

function lastWords(text: string): string {
  return text.trim().split(/\s+/).slice(-10).join(' ');
}
