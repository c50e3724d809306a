import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { type GgufConfig, ggufFacts, type GgufFacts } from './gguf-config-parts.js';
import { GEMMA_ARCHITECTURES } from './gguf-config-gemma.js';
import { DEEPSEEK_ARCHITECTURES } from './gguf-config-latent.js';
import { HYBRID_ARCHITECTURES } from './gguf-config-hybrid.js';
import { PLAIN_ARCHITECTURES } from './gguf-config-plain.js';
import { shortName } from '../model-config/config-reader.js';
import { architectureKeys, GgufKeyReader } from './gguf-keys.js';
import type { GgufModel } from './gguf-types.js';

/** The architectures that are read, by llama.cpp's names for them. */
const ARCHITECTURES: ReadonlyMap<string, (facts: GgufFacts) => GgufConfig> = new Map(
  Object.entries({
    ...PLAIN_ARCHITECTURES,
    ...DEEPSEEK_ARCHITECTURES,
    ...HYBRID_ARCHITECTURES,
    ...GEMMA_ARCHITECTURES,
  }),
);

export const GGUF_ARCHITECTURES: readonly string[] = [...ARCHITECTURES.keys()];

const NAMED_KEYS = 5;

/**
 * Makes the config.json that the Hugging Face checkpoint of a GGUF's model would have, so that the model's family reads it as any other. A key of
 * the architecture that nobody reads might change the answers, so it is refused; other keys describe the file or its tokenizer.
 * @throws MODEL_CORRUPT, MODEL_UNSUPPORTED
 */
export function ggufConfig(model: GgufModel): GgufConfig {
  const architecture = new GgufKeyReader(model.keys, model.path).text('general.architecture');
  const read = ARCHITECTURES.get(architecture);
  if (read === undefined) {
    throw new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${model.path}: the GGUF architecture ${JSON.stringify(architecture)} is not supported; supported: ${GGUF_ARCHITECTURES.join(', ')}`,
    );
  }
  const keys = architectureKeys(model.keys, model.path);
  const config = read(ggufFacts(model, keys));
  const unread = keys.unread().filter((key) => key.startsWith(keys.prefix));
  if (unread.length === 0) return config;
  const more = unread.length > NAMED_KEYS ? ` and ${unread.length - NAMED_KEYS} more` : '';
  throw new OdmoeError(
    'MODEL_UNSUPPORTED',
    `${model.path}: it is not known what the keys ${unread.slice(0, NAMED_KEYS).map(shortName).join(', ')}${more} change, so that answers might be wrong; ` +
      'choose a file without them, or get the model as safetensors',
  );
}
