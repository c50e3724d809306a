import { join } from 'node:path';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { realDevices } from '../../engine/environment/node-environment.js';
import { LocalEngine } from '../../engine/generation/local-engine.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { EmulationSettings } from '../../shared/settings/node-settings.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import { summarizeAnswers, type Measure, type Measurement } from './measurement.js';
import { CACHED_PROFILES, isCachedMachine, type CachedMachine, type SetUp, type ShadowQuantize } from './set-up.js';
import { wholeTokenMs } from '../../simulator/simulate/cluster-set-up.js';
import { writeShadowProfile } from './shadow-profile.js';
import { SetUpSimulator } from './simulate-set-up.js';
import { answerRequest, collectAnswer, type CollectedAnswer } from '../../cli/client/measured-request.js';
import { Testbed } from './testbed.js';
import { VirtualCached, VirtualTestbed } from './virtual-testbed.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { demoPrompts, MOST_PROMPTS } from '../../engine/fitting/demo-prompts.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';

/** Tokens of an answer that is only for warm-up; its times do not count. */
const WARM_UP_TOKENS = 4;
const PREFILL_ROWS = 256;

export interface MeasureOptions {
  packPath: string;
  tokenizer: Tokenizer;
  workers: number;
  precision: ShadowPrecision;
  quantize: ShadowQuantize;
  /** Number of prompts of each length. */
  prompts: number;
  /** Most tokens of an answer. */
  tokensLimit: number;
  /** Null: no emulation; this machine's own times. */
  profilePath: string | null;
  /** For profiles that are made; it is there until the end of the run. */
  directory: string;
  /** True: in real time, with separate processes. False: on a virtual clock, if there is a profile. */
  wall: boolean;
  signal: AbortSignal;
  /** Gets lines for people. */
  onProgress: (line: string) => void;
}

type Answer = (promptIds: readonly number[], tokens: number) => Promise<CollectedAnswer>;

interface Running {
  answer: Answer;
  stop: () => Promise<void>;
}

/** The path of the profile with that name in bench/profiles. */
export function paperProfileFile(name: string): string {
  return join(packageRoot(), 'bench', 'profiles', `${name}.yaml`);
}

/** Runs set-ups one after the other and stores each result. The last started set-up runs until another one is needed. */
export class SetUpRunner {
  private readonly known = new Map<string, Measurement>();
  private running: (Running & { key: string }) | null = null;

  private readonly simulator: SetUpSimulator;

  constructor(private readonly options: MeasureOptions) {
    this.simulator = new SetUpSimulator(options);
  }

  readonly measure: Measure = async (setUp, inputTokens, outputTokens) => {
    const { tokenizer, prompts, tokensLimit, onProgress } = this.options;
    const tokens = Math.min(outputTokens, tokensLimit);
    const key = JSON.stringify([setUp, inputTokens, tokens]);
    const found = this.known.get(key);
    if (found !== undefined) return found;
    const answer = await this.started(setUp);
    const answers: CollectedAnswer[] = [];
    const asked = testbedPrompts(tokenizer, inputTokens, prompts);
    for (const prompt of asked) answers.push(await answer(prompt, tokens));
    const profilePath = await this.profileOf(setUp);
    // A trace has no states for trained maps to read.
    const isTraced = isCachedMachine(setUp) || setUp.prediction !== 'trained';
    const simulated =
      profilePath === null || !isTraced ? null : await this.simulator.simulate(setUp, profilePath, asked, tokens);
    const shadowTokenMs = profilePath === null ? null : wholeTokenMs(loadDeviceProfile(profilePath), 'shadow');
    const measurement = summarizeAnswers(answers, { simulated, shadowTokenMs });
    this.known.set(key, measurement);
    const speed = `${measurement.decodeTokensPerS.toFixed(2)} tokens/s, first after ${measurement.ttftMs.toFixed(0)} ms`;
    const said = simulated === null ? '' : ` (simulated: ${simulated.decodeTokensPerS.toFixed(2)} tokens/s)`;
    onProgress(`  (${inputTokens}, ${tokens}), ${prompts} prompts: ${speed}${said}`);
    return measurement;
  };

  async stop(): Promise<void> {
    const { running } = this;
    this.running = null;
    await running?.stop();
  }

  private async started(setUp: SetUp | CachedMachine): Promise<Answer> {
    const key = JSON.stringify(setUp);
    if (this.running?.key === key) return this.running.answer;
    await this.stop();
    this.options.onProgress(describe(setUp));
    const running = isCachedMachine(setUp) ? await this.startCached(setUp) : await this.startTestbed(setUp);
    this.running = { key, ...running };
    const [prompt] = testbedPrompts(this.options.tokenizer, 16, 1);
    await this.running.answer(prompt ?? [], WARM_UP_TOKENS);
    return this.running.answer;
  }

  private async startTestbed(setUp: SetUp): Promise<Running> {
    const { packPath, quantize, wall, signal } = this.options;
    const profilePath = await this.profileOf(setUp);
    const precision = setUp.shadowPrecision ?? this.options.precision;
    const common = { packPath, workers: setUp.workers ?? this.options.workers, setUp, precision, quantize };
    const testbed =
      wall || profilePath === null
        ? await Testbed.start({ ...common, profilePath }, signal)
        : await VirtualTestbed.start({ ...common, profilePath });
    return {
      answer: (promptIds, tokens) => testbed.answer(promptIds, tokens, signal),
      stop: () => testbed.stop(),
    };
  }

  private async startCached(machine: CachedMachine): Promise<Running> {
    const { packPath, wall, signal } = this.options;
    const profilePath = await this.profileOf(machine);
    if (!wall && profilePath !== null) {
      const cached = await VirtualCached.start(packPath, profilePath, PREFILL_ROWS);
      return {
        answer: (promptIds, tokens) => cached.answer(promptIds, tokens, signal),
        stop: async () => cached.stop(),
      };
    }
    const emulation: EmulationSettings | null = profilePath === null ? null : { profilePath, expertStorage: 'fp32' };
    const engine = await LocalEngine.open(packPath, {
      device: { backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 },
      resident: null,
      shadow: null,
      prefillRows: PREFILL_ROWS,
      onProgress: null,
      emulation,
      chooseSeed: () => 0,
      environment: realDevices(),
    });
    return {
      answer: (promptIds, tokens) => collectAnswer(engine.generate(answerRequest(promptIds, tokens), signal)),
      stop: async () => {
        engine.dispose();
      },
    };
  }

  /** Null without emulation; else the set-up's own profile, or the given one, with the shadow of the set-up. */
  private async profileOf(setUp: SetUp | CachedMachine): Promise<string | null> {
    const { profilePath, directory } = this.options;
    if (profilePath === null) return null;
    const profile = isCachedMachine(setUp) ? CACHED_PROFILES[setUp] : setUp.profile;
    const path = profile === null ? profilePath : paperProfileFile(profile);
    if (isCachedMachine(setUp) || setUp.shadowPrecision === null) return path;
    return writeShadowProfile(path, setUp.shadowPrecision, directory);
  }
}

function describe(setUp: SetUp | CachedMachine): string {
  if (isCachedMachine(setUp)) return setUp === 'cached' ? 'fully cached' : 'fully cached, BF16';
  const parts = [
    `prediction ${setUp.prediction}`,
    `align ${setUp.alignTokenPeriod}/${setUp.alignKeyValuePeriod}`,
    ...(setUp.streamKeyValues ? ['streamed KV'] : []),
    ...(setUp.optimistic ? ['optimistic'] : []),
    ...(setUp.draftRows === 1 ? [] : [`drafts ${setUp.draftRows}`]),
    ...(setUp.prefillOverlap ? ['prefill overlapped'] : []),
    ...(setUp.spread === 'all' ? ['spread over all'] : []),
    ...(setUp.expertStorage === 'fp32' ? [] : [`${setUp.expertStorage}, ${setUp.slots} slots`]),
    ...(setUp.profile === null ? [] : [setUp.profile]),
    ...(setUp.shadowPrecision === null ? [] : [`shadow ${setUp.shadowPrecision}`]),
  ];
  return parts.join(', ');
}

/** Most requests that form one prompt. */
const REQUESTS_LIMIT = 64;

/**
 * Makes `count` prompts of exactly `length` token ids: story requests in the model's chat template. A request is extended by further requests
 * and cut at the length. If the template itself does not fit, the prompt's end is cut off.
 */
export function testbedPrompts(tokenizer: Tokenizer, length: number, count: number): number[][] {
  if (count > MOST_PROMPTS)
    throw new OdmoeError('USAGE', `there are ${MOST_PROMPTS} prompts, and ${count} are asked for`);
  return Array.from({ length: count }, (_, index) => promptOf(tokenizer, length, index));
}

function promptOf(tokenizer: Tokenizer, length: number, index: number): number[] {
  const stories = demoPrompts(MOST_PROMPTS);
  const request = (sentences: number): string =>
    Array.from({ length: sentences }, (_, place) => stories[(index + place) % stories.length] ?? '').join(' ');
  const render = (text: string): number[] =>
    tokenizer.hasChatTemplate
      ? tokenizer.encodeChat([{ role: 'user', content: text }], { values: {}, wallMs: 0 })
      : tokenizer.encode(text);
  // The common end of all requests belongs to the template.
  const ending = tokenizer.hasChatTemplate ? commonEnd(render('one'), render('two')) : 0;
  for (let sentences = 1; sentences <= REQUESTS_LIMIT; sentences += 1) {
    const ids = render(request(sentences));
    if (ids.length < length) continue;
    if (ending >= length) return ids.slice(0, length);
    return [...ids.slice(0, length - ending), ...ids.slice(ids.length - ending)];
  }
  throw new OdmoeError('USAGE', `no prompt of ${length} tokens can be made; ask for a shorter one`);
}

function commonEnd(left: readonly number[], right: readonly number[]): number {
  let length = 0;
  while (length < Math.min(left.length, right.length) && left.at(-1 - length) === right.at(-1 - length)) length += 1;
  return length;
}
