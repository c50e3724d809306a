import { answerArithmetic } from '../fields/arithmetic-field.js';
import { jsonWithTexts } from '../delivery/json-text.js';
import type { Dialect } from '../delivery/dialect.js';
import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { ServedModel } from '../http-api-context.js';
import { type OllamaHead, emptyPart, type Endpoint, partLine } from './answer-lines.js';
import { taggedName } from './model-name.js';

interface Clocked {
  model: Pick<ServedModel, 'name' | 'arithmetic'>;
  runtime: Pick<Runtime, 'wallMs'>;
}

/** A line of a stream. */
export function lineOf(value: object): string {
  return `${jsonWithTexts(value)}\n`;
}

export function ollamaHead({ model, runtime }: Clocked): OllamaHead {
  return {
    model: taggedName(model.name),
    created_at: new Date(runtime.wallMs()).toISOString(),
    ...answerArithmetic(model),
  };
}

/** A sign of life is a part without text, because Ollama's clients do not accept empty lines. */
export function ollamaDialect(endpoint: Endpoint, context: Clocked) {
  return {
    errorBody: ({ message }: OdmoeError) => ({ error: message }),
    streamType: 'application/x-ndjson',
    keepAlive: () => lineOf(partLine(endpoint, ollamaHead(context), emptyPart())),
    errorEvent: ({ message }: OdmoeError) => lineOf({ error: message }),
  } satisfies Dialect;
}
