import { formatFixtures } from '../integration/harness/test-models.js';
import { isQuick, modelsAnswer } from './family-answers.js';

describe('a cluster with a model in each quantized format answers as one process does, to the bit:', () => {
  modelsAnswer(formatFixtures(), isQuick);
});
