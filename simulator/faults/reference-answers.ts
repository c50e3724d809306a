import { NATIVE_DEVICES } from '../../engine/devices/devices.js';
import { LocalEngine } from '../../engine/generation/local-engine.js';
import { openServedPack } from '../../packs/open-served-pack.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { Pack } from '../../packs/format/open-pack.js';
import type { GenerateRequest, PromptToken, TokenReply } from '../../shared/wire/messages.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import { modelDirectory } from './scenario-world.js';
import { EXACT_QUALITY, qualityText, type Quality } from '../../shared/settings/quality.js';
import type { Scenario, ScenarioModel } from './scenario.js';

/** Answers that are remembered: those of a scenario, and of the smaller scenarios that shrinking tries. */
const MOST_KNOWN = 256;

/** The answer of the single-process engine to a request. */
export interface ReferenceAnswer {
  promptTokenIds: readonly number[];
  promptLogprobs: readonly PromptToken[];
  tokens: readonly TokenReply[];
  text: string;
  finishReason: string;
  /** The code with which the engine refuses the request; null: it does not refuse it. */
  refusal: ErrorCode | null;
}

/**
 * Packs and single-process engines that all scenarios share, opened when needed. Every cluster must equal the engine's answers to the bit.
 */
export class ReferenceAnswers {
  private readonly packs = new Map<ScenarioModel, Promise<Pack>>();
  /** By model and quality. */
  private readonly engines = new Map<string, Promise<LocalEngine>>();
  private readonly known = new Map<string, Promise<ReferenceAnswer>>();

  /** The answer of the scenario's model in the scenario's quality. */
  answer(scenario: Pick<Scenario, 'model' | 'nodes'>, request: GenerateRequest): Promise<ReferenceAnswer> {
    const { model } = scenario;
    const quality = scenario.nodes[0]?.settings.main.quality ?? EXACT_QUALITY;
    const key = `${model} ${qualityText(quality)} ${JSON.stringify(request)}`;
    let answer = this.known.get(key);
    if (answer === undefined) this.known.set(key, (answer = this.make(model, quality, request)));
    for (const oldest of this.known.keys()) {
      if (this.known.size <= MOST_KNOWN) break;
      this.known.delete(oldest);
    }
    return answer;
  }

  /** The fixture pack of a model, which nobody changes. */
  pack(model: ScenarioModel): Promise<Pack> {
    let pack = this.packs.get(model);
    if (pack === undefined) this.packs.set(model, (pack = openServedPack(modelDirectory(model))));
    return pack;
  }

  async dispose(): Promise<void> {
    for (const engine of this.engines.values()) (await engine).dispose();
    this.engines.clear();
    this.known.clear();
  }

  private async make(model: ScenarioModel, quality: Quality, request: GenerateRequest): Promise<ReferenceAnswer> {
    const engine = await this.engine(model, quality);
    const tokens: TokenReply[] = [];
    const promptLogprobs: PromptToken[] = [];
    const answer = {
      promptTokenIds: [] as readonly number[],
      text: '',
      finishReason: '',
      refusal: null,
      promptLogprobs,
      tokens,
    };
    try {
      for await (const reply of engine.generate(request, new AbortController().signal)) {
        if (reply.kind === 'started') answer.promptTokenIds = reply.started.promptTokenIds;
        else if (reply.kind === 'prompt') promptLogprobs.push(...reply.prompt.tokens);
        else if (reply.kind === 'token') tokens.push(reply.token);
        else if (reply.kind === 'finished')
          Object.assign(answer, { text: reply.finished.text, finishReason: reply.finished.finishReason });
      }
      return answer;
    } catch (thrown) {
      return { ...answer, refusal: toOdmoeError(thrown).code };
    }
  }

  private engine(model: ScenarioModel, quality: Quality): Promise<LocalEngine> {
    const key = `${model} ${qualityText(quality)}`;
    let engine = this.engines.get(key);
    if (engine === undefined) {
      engine = LocalEngine.open(modelDirectory(model), {
        device: { backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 },
        emulation: null,
        resident: null,
        shadow: null,
        quality,
        prefillRows: 64,
        environment: { devices: NATIVE_DEVICES, runtime: new WallRuntime() },
        chooseSeed: () => 0,
        onProgress: null,
      });
      this.engines.set(key, engine);
    }
    return engine;
  }
}
