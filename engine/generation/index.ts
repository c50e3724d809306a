export { AnswerText } from './answer-text.js';
export { ExpertRecall } from './expert-recall.js';
export { generateTokens, type GenerationOptions, type GenerationOutcome } from './generate-tokens.js';
export { GenerationTiming } from './generation-timing.js';
export { LocalEngine, type LocalEngineOptions } from './local-engine.js';
export { LocalSequence, createLocalRunner, type ExpertObserver } from './local-runner.js';
export { InlinePromptEncoder, promptTokenIds, type PromptEncoder, type PromptRequest } from './prompt-encoder.js';
export {
  resolveGeneration,
  type GenerationLimits,
  type GenerationModel,
  type ResolvedGeneration,
} from './resolve-generation.js';
export type { SequenceRunner } from './sequence-runner.js';
export { ShadowedRunner } from './shadowed-runner.js';
export { startPromptThread, ThreadedPromptEncoder } from './threaded-prompt-encoder.js';
