/* Kernels for test_codegen.c: symbols N and M take several sizes. */
#ifndef TESTS_UNIT_CODEGEN_CASES_H
#define TESTS_UNIT_CODEGEN_CASES_H

/* From table p1 of 50 places, five loads in a row, each of where the next one reads: t0 to t4. */
#define FIVE_STEPS                                                                                 \
    "%1 i32 load p0[i*N + j]\n %2 i64 const 49\n %3 i64 const 0\n"                                 \
    "%4 i64 cast %1\n %5 i64 min %4, %2\n %6 i64 max %5, %3\n"                                     \
    "%7 i64 bind t0 %6\n %8 i32 load p1[t0]\n %9 i64 cast %8\n"                                    \
    "%10 i64 min %9, %2\n %11 i64 max %10, %3\n %12 i64 bind t1 %11\n"                             \
    "%13 i32 load p1[t1]\n %14 i64 cast %13\n %15 i64 min %14, %2\n"                               \
    "%16 i64 max %15, %3\n %17 i64 bind t2 %16\n %18 i32 load p1[t2]\n"                            \
    "%19 i64 cast %18\n %20 i64 min %19, %2\n %21 i64 max %20, %3\n"                               \
    "%22 i64 bind t3 %21\n %23 i32 load p1[t3]\n %24 i64 cast %23\n"                               \
    "%25 i64 min %24, %2\n %26 i64 max %25, %3\n %27 i64 bind t4 %26\n"

static const Case cases[] = {
    {"add",
     "kernel add poi i=N\n"
     "param 0 f32[N]\n param 1 f32[N]\n param 2 f32[N] written\n"
     "%1 f32 load p0[i]\n %2 f32 load p1[i]\n %3 f32 add %1, %2\n"
     "%4 f32 store p2[i] %3\n end\n",
     1e-6},
    {"bias_gelu",
     "kernel gelu poi i=N j=96\n"
     "param 0 f32[96*N]\n param 1 f32[96]\n param 2 f32[96*N] written\n"
     "%1 f32 load p0[96*i + j]\n %2 f32 load p1[j]\n %3 f32 add %1, %2\n"
     "%4 f32 const 0.70710678\n %5 f32 mul %3, %4\n %6 f32 erf %5\n %7 f32 const 1\n"
     "%8 f32 add %6, %7\n %9 f32 mul %3, %8\n"
     "%10 f32 store p2[96*i + j] %9\n end\n",
     1e-6},
    {"heads",
     "kernel heads poi b=N h=3 s=5 c=32\n"
     "param 0 f32[480*N]\n param 1 f32[480*N] written\n"
     "%1 f32 load p0[480*b + 96*s + 32*h + c]\n %2 f32 neg %1\n"
     "%3 f32 store p1[480*b + 160*h + 32*s + c] %2\n end\n",
     0},
    {"split_axis",
     "kernel split poi i=N c=96\n"
     "param 0 f32[96*N]\n param 1 f32[96*N] written\n"
     "%1 f32 load p0[96*i + 48*(c%2) + c/2]\n"
     "%2 f32 load p0[96*i + 32*((c/32 + 1)%3) + c%32]\n %3 f32 sub %1, %2\n"
     "%4 f32 store p1[96*i + c] %3\n end\n",
     0},
    {"transpose",
     "kernel transpose poi i=N j=M\n"
     "param 0 f32[N*M]\n param 1 f32[N*M] written\n"
     "%1 f32 load p0[j*N + i]\n %2 f32 store p1[i*M + j] %1\n end\n",
     0},
    {"turn_panels", /* of 70 columns with 48 rows side by side in each */
     "kernel panels poi p=2 k=48 j=64\n"
     "param 0 f32[3360]\n param 1 f32[6144] written\n"
     "%1 f32 load p0[(p*64 + j)*48 + k] if [p*64 + j < 70]\n"
     "%2 f32 store p1[(p*48 + k)*64 + j] %1\n end\n",
     0},
    {"turn_ragged",
     "kernel ragged poi i=37 j=50\n"
     "param 0 f32[1850]\n param 1 f32[1850]\n param 2 f32[50]\n param 3 f32[1850] written\n"
     "%1 f32 load p0[j*37 + i]\n %2 f32 load p1[i*50 + j]\n %3 f32 load p2[j]\n"
     "%4 f32 mul %1, %3\n %5 f32 add %4, %2\n %6 f32 store p3[i*50 + j] %5\n end\n",
     1e-6},
    {"turn_two",
     "kernel two poi b=3 i=N j=M\n"
     "param 0 bf16[3*N*M]\n param 1 i64[3*N*M]\n param 2 f32[3*N*M] written\n"
     "%1 bf16 load p0[(b*M + j)*N + i]\n %2 f32 cast %1\n"
     "%3 i64 load p1[(b*M + j)*N + N - 1 - i]\n %4 f32 cast %3\n %5 f32 add %2, %4\n"
     "%6 f32 store p2[(b*N + i)*M + j] %5\n end\n",
     1e-6},
    {"turn_bytes",
     "kernel bytes poi i=N j=M\n"
     "param 0 u8[N*M]\n param 1 f64[N*M]\n param 2 f64[N*M] written\n"
     "%1 u8 load p0[j*N + i]\n %2 f64 cast %1\n %3 f64 load p1[j*N + i] if [j < 20]\n"
     "%4 f64 add %2, %3\n %5 f64 store p2[i*M + j] %4\n end\n",
     1e-12},
    {"turn_pixels", /* which are put together */
     "kernel pixels poi b=3 c=37 y=5 v=2 x=21 u=2\n"
     "param 0 f16[46620]\n param 1 f32[37]\n param 2 f32[46620] written\n"
     "%1 f16 load p0[b*15540 + y*3108 + v*1554 + x*74 + u*37 + c]\n %2 f32 cast %1\n"
     "%3 f32 load p1[c]\n %4 f32 mul %2, %3\n"
     "%5 f32 store p2[b*15540 + c*420 + y*84 + v*42 + x*2 + u] %4\n end\n",
     1e-6},
    {"turn_one", /* an axis of one element, whose step is that of another */
     "kernel one poi u=1 i=5 j=3 v=1\n"
     "param 0 f32[15]\n param 1 f32[15] written\n"
     "%1 f32 load p0[i + j*5 + u + v]\n %2 f32 store p1[i*3 + j + u + v] %1\n end\n",
     0},
    {"turn_shuffled", /* channels, beside what lies as it is stored, in even steps, and in others */
     "kernel shuffled poi b=2 i=N c=18 g=2\n"
     "param 0 f32[72*N]\n param 1 f32[72*N]\n param 2 f32[72]\n param 3 f32[72*N]\n"
     "param 4 f32[72*N] written\n"
     "%1 f32 load p0[b*36*N + g*18*N + c*N + i]\n %2 f32 load p1[b*36*N + i*36 + c*2 + g]\n"
     "%3 f32 load p2[c*4 + g*2]\n %4 f32 load p3[b*36*N + i*36 + g*18 + c]\n %5 f32 mul %1, %2\n"
     "%6 f32 add %3, %4\n %7 f32 add %5, %6\n %8 f32 store p4[b*36*N + i*36 + c*2 + g] %7\n end\n",
     1e-6},
    {"turns_point",
     "kernel turns poi turns t=N i=M\n"
     "param 0 f32[M*N]\n param 1 f16[M] written\n param 2 f16[M*N] written\n"
     "%1 f32 load p0[t*M + i]\n %2 f16 load p1[i]\n %3 f32 cast %2\n %4 f32 mul %1, %3\n"
     "%5 f32 add %4, %1\n %6 f16 cast %5\n %7 f16 store p1[i] %6\n"
     "%8 f16 store p2[t*M + i] %6\n end\n",
     1e-3},
    {"turns_few", /* addresses are known */
     "kernel turns poi turns t=7 i=35\n"
     "param 0 i64[35] written\n param 1 i64[245] written\n"
     "%1 i64 load p0[i]\n %2 i64 expr [t + 1]\n %3 i64 add %1, %2\n %4 i64 store p0[i] %3\n"
     "%5 i64 store p1[t*35 + i] %3\n end\n",
     0},
    {"turns_row",
     "kernel turns per turns t=21 i=N ~j=24\n"
     "param 0 f16[504*N]\n param 1 f32[24*N] written\n param 2 f32[21*N] written\n"
     "%1 f16 load p0[24*t*N + 24*i + j]\n %2 f32 cast %1\n %3 f32 load p1[24*i + j]\n"
     "%4 f32 mul %2, %3\n %5 f32 tanh %4\n %6 f32 add %5, %2\n %7 f32 store p1[24*i + j] %6\n"
     "%8 f32 reduce sum j %6\n %9 f32 store p2[t*N + i] %8\n end\n",
     1e-5},
    {"join_pixels",
     "kernel pixels poi c=4 i=N\n"
     "param 0 f32[3*N]\n param 1 u8[4*N] written\n"
     "%1 u8 const 0\n %2 f32 load p0[c*N + i] if [c < 3]\n %3 f32 round %2\n"
     "%4 f32 const 7\n %5 f32 add %3, %4\n %6 f32 const 0\n %7 f32 max %5, %6\n"
     "%8 u8 cast %7\n %9 i64 expr [c < 3]\n %10 i64 const 0\n %11 bool ne %9, %10\n"
     "%12 u8 select %11, %8, %1\n %13 u8 store p1[c + i*4] %12\n end\n",
     0},
    {"join_known",
     "kernel known poi c=4 i=96\n"
     "param 0 f32[384]\n param 1 u8[384] written\n"
     "%1 f32 load p0[c*96 + i]\n %2 u8 cast %1\n %3 u8 store p1[c + i*4] %2\n end\n",
     0},
    {"join_two", /* of which one is read side by side as well */
     "kernel two poi b=3 i=N c=2\n"
     "param 0 f32[2*N]\n param 1 f64[6*N]\n param 2 f64[6*N] written\n param 3 f32[6*N] written\n"
     "%1 f32 load p0[c*N + i]\n %2 f64 cast %1\n %3 f64 load p1[b*2*N + c + 2*i]\n"
     "%4 f64 add %2, %3\n %5 f64 store p2[(b*N + i)*2 + c] %4\n"
     "%6 f32 neg %1\n %7 f32 store p3[c + (b*N + i)*2] %6\n end\n",
     1e-12},
    {"join_eight",
     "kernel eight poi c=8 i=M\n"
     "param 0 f32[8*M]\n param 1 f32[8*M] written\n"
     "%1 f32 load p0[c*M + i]\n %2 f32 neg %1\n %3 f32 store p1[c + i*8] %2\n end\n",
     0},
    {"reverse",
     "kernel reverse poi i=N\n"
     "param 0 f32[N]\n param 1 f32[N] written\n"
     "%1 f32 load p0[N - 1 - i]\n %2 f32 store p1[i] %1\n end\n",
     0},
    {"pad",
     "kernel pad poi i=N + 5\n"
     "param 0 f32[N]\n param 1 f32[N + 5] written\n %1 f32 const 7\n"
     "%2 f32 load p0[i - 2] if [(1 < i)*(i < N + 2)] else %1\n"
     "%3 f32 store p1[i] %2\n end\n",
     0},
    {"concat",
     "kernel concat poi i=3 j=N + M\n"
     "param 0 f32[3*N]\n param 1 f32[3*M]\n param 2 f32[3*(N + M)] written\n"
     "%1 f32 load p1[i*M + j - N] if [N < j + 1]\n"
     "%2 f32 load p0[i*N + j] if [j < N] else %1\n"
     "%3 f32 store p2[i*(N + M) + j] %2\n end\n",
     0},
    {"to_bytes", /* what is clamped: middles of two, no numbers, infinities, fractions below 0 */
     "kernel to_bytes poi i=7*N\n"
     "param 0 f32[7*N]\n param 1 u8[7*N] written\n param 2 u8[7*N] written\n"
     "param 3 i8[7*N] written\n param 4 i8[7*N] written\n param 5 u8[7*N] written\n"
     "%1 f32 load p0[i]\n %2 f32 const 400\n %3 f32 mul %1, %2\n %4 f32 round %3\n"
     "%5 f32 const 0.5\n %6 f32 mul %4, %5\n %7 f32 const 150\n %8 bool lt %7, %6\n"
     "%9 f32 const nan\n %10 f32 select %8, %9, %6\n %11 f32 const -150\n %12 bool lt %6, %11\n"
     "%13 f32 const inf\n %14 f32 const 1\n %15 f32 div %6, %14\n %16 f32 mul %15, %13\n"
     "%17 f32 select %12, %16, %10\n %18 f32 round %17\n"
     "%19 f32 const -14\n %20 f32 const 241\n %21 f32 const 14\n %22 f32 max %18, %19\n"
     "%23 f32 min %22, %20\n %24 f32 add %23, %21\n %25 u8 cast %24\n %26 u8 store p1[i] %25\n"
     "%27 f32 const 0\n %28 f32 const 255\n %29 f32 max %17, %27\n %30 f32 min %29, %28\n"
     "%31 u8 cast %30\n %32 u8 store p2[i] %31\n"
     "%33 f32 const 127\n %34 f32 max %18, %27\n %35 f32 min %34, %33\n %36 i8 cast %35\n"
     "%37 i8 store p3[i] %36\n %38 f32 const -128\n %39 f32 max %18, %38\n %40 f32 min %39, %33\n"
     "%41 i8 cast %40\n %42 i8 store p4[i] %41\n"
     "%43 f32 const 20\n %44 f32 mul %1, %43\n %45 f32 max %44, %19\n %46 f32 min %45, %20\n"
     "%47 f32 add %46, %21\n %48 u8 cast %47\n %49 u8 store p5[i] %48\n end\n",
     0},
    {"softmax",
     "kernel softmax per i=N ~j=M\n"
     "param 0 f32[N*M]\n param 1 f32[N*M] written\n"
     "%1 f32 load p0[i*M + j]\n %2 f32 reduce max j %1\n %3 f32 sub %1, %2\n"
     "%4 f32 exp %3\n %5 f32 reduce sum j %4\n %6 f32 div %4, %5\n"
     "%7 f32 store p1[i*M + j] %6\n end\n",
     1e-6},
    {"softmax64",
     "kernel softmax per i=N ~j=64\n"
     "param 0 f32[N*64]\n param 1 f32[N*64] written\n"
     "%1 f32 load p0[i*64 + j]\n %2 f32 reduce max j %1\n %3 f32 sub %1, %2\n"
     "%4 f32 exp %3\n %5 f32 reduce sum j %4\n %6 f32 div %4, %5\n"
     "%7 f32 store p1[i*64 + j] %6\n end\n",
     1e-6},
    {"layernorm",
     "kernel layernorm per i=N ~j=100\n"
     "param 0 f32[N*100]\n param 1 f32[100]\n param 2 f32[100]\n param 3 f32[N*100] written\n"
     "param 4 f32[N] written\n"
     "%1 f32 load p0[i*100 + j]\n %2 f32 reduce sum j %1\n %3 f32 const 0.01\n"
     "%4 f32 mul %2, %3\n %5 f32 sub %1, %4\n %6 f32 mul %5, %5\n %7 f32 reduce sum j %6\n"
     "%8 f32 mul %7, %3\n %9 f32 const 1e-5\n %10 f32 add %8, %9\n %11 f32 rsqrt %10\n"
     "%12 f32 mul %5, %11\n %13 f32 load p1[j]\n %14 f32 mul %12, %13\n"
     "%15 f32 load p2[j]\n %16 f32 add %14, %15\n %17 f32 store p3[i*100 + j] %16\n"
     "%18 f32 store p4[i] %4\n end\n",
     2e-6},
    {"rms_long",
     "kernel rms per i=N ~j=1003\n"
     "param 0 f32[N*1003]\n param 1 f32[N*1003] written\n"
     "%1 f32 load p0[i*1003 + j]\n %2 f32 mul %1, %1\n %3 f32 reduce sum j %2\n"
     "%4 f32 sqrt %3\n %5 f32 div %1, %4\n %6 f32 store p1[i*1003 + j] %5\n end\n",
     2e-6},
    {"column_long",
     "kernel column red ~i=203 j=M\n"
     "param 0 f32[203*M]\n param 1 f32[M] written\n param 2 f32[M] written\n"
     "%1 f32 load p0[i*M + j]\n %2 f32 reduce sum i %1\n %3 f32 store p1[j] %2\n"
     "%4 f32 reduce max i %1\n %5 f32 store p2[j] %4\n end\n",
     2e-6},
    {"folds",
     "kernel folds red i=N ~j=M\n"
     "param 0 f32[N*M]\n param 1 i32[N*M]\n param 2 f32[N] written\n"
     "param 3 i32[N] written\n param 4 f32[N] written\n"
     "%1 f32 load p0[i*M + j]\n %2 f32 reduce min j %1\n %3 f32 store p2[i] %2\n"
     "%4 i32 load p1[i*M + j]\n %5 i32 reduce min j %4\n %6 i32 store p3[i] %5\n"
     "%7 f32 const 0.25\n %8 f32 mul %1, %7\n %9 f32 reduce prod j %8\n"
     "%10 f32 store p4[i] %9\n end\n",
     4e-6},
    {"column_folds",
     "kernel column red ~i=203 j=M\n"
     "param 0 f32[203*M]\n param 1 f32[M] written\n"
     "%1 f32 load p0[i*M + j]\n %2 f32 reduce min i %1\n %3 f32 store p1[j] %2\n"
     " end\n",
     0},
    {"instance_norm",
     "kernel inorm per g=M ~x=N ~y=4\n"
     "param 0 f32[4*N*M]\n param 1 f32[4*N*M] written\n"
     "%1 f32 load p0[g*4 + y + x*4*M]\n %2 f32 reduce sum x,y %1\n %3 f32 sub %1, %2\n"
     "%4 f32 mul %3, %3\n %5 f32 reduce sum x,y %4\n %6 f32 rsqrt %5\n %7 f32 mul %3, %6\n"
     "%8 f32 store p1[g*4 + y + x*4*M] %7\n end\n",
     4e-6},
    {"sum_two",
     "kernel sum red i=N ~j=M ~k=3\n"
     "param 0 f32[N*M*3]\n param 1 f32[N] written\n param 2 f32[N] written\n"
     "%1 f32 load p0[(i*M + j)*3 + k]\n %2 f32 mul %1, %1\n %3 f32 reduce sum j,k %1\n"
     "%4 f32 reduce sum j,k %2\n %5 f32 store p1[i] %3\n %6 f32 store p2[i] %4\n end\n",
     2e-6},
    {"column_sum",
     "kernel column red ~i=N j=M\n"
     "param 0 f32[N*M]\n param 1 f32[M] written\n"
     "%1 f32 load p0[i*M + j]\n %2 f32 reduce sum i %1\n %3 f32 store p1[j] %2\n end\n",
     2e-6},
    {"depthwise",
     "kernel depthwise red h=6 w=N c=M ~r=3 ~s=3\n"
     "param 0 f32[6*N*M]\n param 1 f32[9*M]\n param 2 f32[6*N*M] written\n"
     "%1 f32 load p0[((h + r - 1)*N + w + s - 1)*M + c] if "
     "[(0 < h + r)*(h + r < 7)*(0 < w + s)*(w + s < N + 1)]\n"
     "%2 f32 load p1[(3*r + s)*M + c]\n %3 f32 mul %1, %2\n %4 f32 reduce sum r,s %3\n"
     "%5 f32 const 0\n %6 f32 max %4, %5\n %7 f32 store p2[(h*N + w)*M + c] %6\n end\n",
     2e-6},
    {"maxpool_nchw",
     "kernel maxpool red c=3 h=4 w=N ~r=2 ~s=2\n"
     "param 0 f32[3*8*2*N]\n param 1 f32[12*N] written\n"
     "%1 f32 load p0[(c*8 + 2*h + r)*2*N + 2*w + s]\n %2 f32 reduce max r,s %1\n"
     "%3 f32 store p1[(c*4 + h)*N + w] %2\n end\n",
     0},
    {"argmax",
     "kernel argmax red i=N ~j=M\n"
     "param 0 f32[N*M]\n param 1 i64[N] written\n param 2 i64[N] written\n"
     "%1 f32 load p0[i*M + j]\n %2 f32 round %1\n %3 i64 reduce argmax j %2\n"
     "%4 i64 reduce argmin_last j %2\n"
     "%5 i64 store p1[i] %3\n %6 i64 store p2[i] %4\n end\n",
     0},
    {"argmax_outer",
     "kernel argmax red ~j=M i=N\n"
     "param 0 i32[N*M]\n param 1 i64[N] written\n"
     "%1 i32 load p0[j*N + i]\n %2 i64 reduce argmax_last j %1\n"
     "%3 i64 store p1[i] %2\n end\n",
     0},
    {"matmul_plain",
     "kernel matmul red m=N n=M ~k=19\n"
     "param 0 f32[N*19]\n param 1 f32[19*M]\n param 2 f32[N*M] written\n"
     "%1 f32 load p0[m*19 + k]\n %2 f32 load p1[k*M + n]\n %3 f32 mul %1, %2\n"
     "%4 f32 reduce sum k %3\n %5 f32 store p2[m*M + n] %4\n end\n",
     2e-6},
    {"gather",
     "kernel gather poi i=N j=M\n"
     "param 0 f32[10*M]\n param 1 i64[N]\n param 2 f32[N*M] written\n"
     "%1 i64 load p1[i]\n %2 i64 const 3\n %3 i64 add %1, %2\n %4 i64 bind t %3\n"
     "%5 f32 load p0[t*M + j]\n %6 f32 store p2[i*M + j] %5\n end\n",
     0},
    {"gather_elements",
     "kernel gathere poi i=N\n"
     "param 0 f32[10]\n param 1 i32[N]\n param 2 f32[N] written\n"
     "%1 i32 load p1[i]\n %2 i32 const 3\n %3 i32 add %1, %2\n %4 i64 cast %3\n"
     "%5 i64 bind t %4\n"
     "%6 f32 load p0[t]\n %7 f32 store p2[i] %6\n end\n",
     0},
    {"walk",
     "kernel walk poi i=M j=N\n"
     "param 0 i32[M*N]\n param 1 i32[50]\n param 2 i32[M*N] written\n" FIVE_STEPS
     "%28 i32 load p1[t4]\n %29 i32 store p2[i*N + j] %28\n end\n",
     0},
    {"walk_sum",
     "kernel walksum red j=N ~i=M\n"
     "param 0 i32[M*N]\n param 1 i32[50]\n param 2 f32[50]\n param 3 f32[N] written\n" FIVE_STEPS
     "%28 i32 load p1[t4]\n %29 i64 cast %28\n %30 i64 min %29, %2\n"
     "%31 i64 max %30, %3\n %32 i64 bind w %31\n %33 f32 load p2[w]\n"
     "%34 f32 reduce sum i %33\n %35 f32 store p3[j] %34\n end\n",
     4e-6},
    {"scatter_add",
     "kernel scatter poi serial i=N j=M\n"
     "param 0 i64[N]\n param 1 f32[N*M]\n param 2 f32[10*M] written\n"
     "%1 i64 load p0[i]\n %2 i64 abs %1\n %3 i64 bind t %2\n %4 f32 load p1[i*M + j]\n"
     "%5 f32 atomic add p2[t*M + j] %4 if [t < 3]\n end\n",
     2e-6},
    {"cumsum",
     "kernel cumsum tem scan i=N ~j=M\n"
     "param 0 f32[N*M]\n param 1 f32[N*M] written\n"
     "%1 f32 load p0[i*M + j]\n %2 f32 scan sum j %1\n %3 f32 store p1[i*M + j] %2\n end\n",
     4e-6},
    {"cumprod_reverse",
     "kernel cumprod tem scan i=N ~j=7\n"
     "param 0 f64[N*7]\n param 1 f64[N*7] written\n"
     "%1 f64 load p0[i + N*j]\n %2 f64 scan prod j %1 exclusive reverse\n"
     "%3 f64 store p1[i + N*j] %2\n end\n",
     1e-14},
    {"sort",
     "kernel sort tem sort i=5 ~j=M\n"
     "param 0 f32[5*M]\n param 1 i64[5*M] written\n param 2 f32[5*M] written\n"
     "%1 f32 load p0[i*M + j]\n %2 f32 round %1\n %3 i64 sort j %2 reverse\n"
     "%4 i64 store p1[i*M + j] %3\n %5 i64 bind t %3\n %6 f32 load p0[i*M + t]\n"
     "%7 f32 store p2[i*M + j] %6\n end\n",
     0},
    {"sort_outer",
     "kernel sort tem sort ~j=M i=6\n"
     "param 0 f32[6*M]\n param 1 i64[6*M] written\n"
     "%1 f32 load p0[j*6 + i]\n %2 f32 round %1\n %3 i64 sort j %2\n"
     "%4 i64 store p1[j*6 + i] %3\n end\n",
     0},
    {"saturate",
     "kernel cast poi i=N\n"
     "param 0 f32[N]\n param 1 i64[N] written\n param 2 i32[N] written\n"
     "%1 f32 load p0[i]\n %2 f32 const 0x1p64\n %3 f32 mul %1, %2\n %4 i64 cast %3\n"
     "%5 i64 store p1[i] %4\n %6 f32 const 0x1p30\n %7 f32 mul %1, %6\n %8 i32 cast %7\n"
     "%9 i32 store p2[i] %8\n end\n",
     0},
    {"compact",
     "kernel compact tem compact ~i=N\n"
     "param 0 f32[N]\n param 1 i64[N] written\n param 2 i64[1] written\n"
     "%1 f32 load p0[i]\n %2 f32 const 0\n %3 bool lt %2, %1\n"
     "%4 i64 compact i %3 p1 count cnt\n end\n",
     0},
    {"ints",
     "kernel ints poi i=N\n"
     "param 0 i32[N]\n param 1 i32[N]\n param 2 i32[N] written\n param 3 i32[N] written\n"
     "param 4 bool[N] written\n param 5 i32[N] written\n"
     "%1 i32 load p0[i]\n %2 i32 load p1[i]\n %3 i32 div %1, %2\n %4 i32 mod %1, %2\n"
     "%5 i32 rem %1, %2\n %6 bool le %1, %2\n %7 i32 store p2[i] %3\n %8 i32 mul %4, %5\n"
     "%9 i32 store p3[i] %8\n %10 bool store p4[i] %6\n %11 i32 pow %1, %2\n"
     "%12 i32 store p5[i] %11\n end\n",
     0},
    {"bools",
     "kernel bools poi i=N\n"
     "param 0 bool[N]\n param 1 u8[N]\n param 2 f32[N]\n param 3 f32[N] written\n"
     "%1 bool load p0[i]\n %2 u8 load p1[i]\n %3 f32 load p2[i]\n %4 f32 cast %2\n"
     "%5 bool not %1\n %6 f32 select %5, %3, %4\n %7 f32 store p3[i] %6\n end\n",
     0},
    {"narrow",
     "kernel narrow poi i=N\n"
     "param 0 f16[N]\n param 1 bf16[N]\n param 2 f8e4m3fn[N]\n param 3 f16[N] written\n"
     "param 4 bf16[N] written\n param 5 f8e5m2[N] written\n param 6 f8e4m3fnuz[N] written\n"
     "%1 f16 load p0[i]\n %2 f32 cast %1\n %3 bf16 load p1[i]\n %4 f32 cast %3\n"
     "%5 f8e4m3fn load p2[i]\n %6 f32 cast %5\n %7 f32 mul %2, %4\n %8 f32 add %7, %6\n"
     "%9 f16 cast %7\n %10 f16 store p3[i] %9\n %11 bf16 cast %7\n"
     "%12 bf16 store p4[i] %11\n %13 f8e5m2 cast %4\n %14 f8e5m2 store p5[i] %13\n"
     "%15 f8e4m3fnuz cast %2\n %16 f8e4m3fnuz store p6[i] %15\n end\n",
     0},
    {"casts",
     "kernel casts poi i=N\n"
     "param 0 f32[N]\n param 1 i8[N] written\n param 2 i64[N] written\n param 3 u8[N]\n"
     "param 4 f64[N] written\n param 5 bool[N] written\n"
     "%1 f32 load p0[i]\n %2 i8 cast %1\n %3 i8 store p1[i] %2\n %4 i64 cast %1\n"
     "%5 i64 store p2[i] %4\n %6 u8 load p3[i]\n %7 f64 cast %6\n %8 f64 sqrt %7\n"
     "%9 f64 store p4[i] %8\n %10 bool cast %2\n %11 bool store p5[i] %10\n end\n",
     1e-15},
    {"powf",
     "kernel powf poi i=N\n"
     "param 0 f32[N]\n param 1 f32[N]\n param 2 f32[N] written\n"
     "%1 f32 load p0[i]\n %2 f32 load p1[i]\n %3 f32 abs %1\n %4 f32 pow %3, %2\n"
     "%5 f32 store p2[i] %4\n end\n",
     1e-6},
    {"iota",
     "kernel iota poi i=N j=M\n"
     "param 0 i64[N*M] written\n param 1 f32[N*M] written\n"
     "%1 i64 expr [i*3 + j/2]\n %2 i64 store p0[i*M + j] %1\n %3 f32 cast %1\n"
     "%4 f32 store p1[i*M + j] %3\n end\n",
     0},
    {"label",
     "kernel label poi i=N j=M\n"
     "param 0 i64[N]\n param 1 f32[N*M] written\n param 2 f32[N*M] written\n"
     "%1 i64 load p0[i]\n %2 i64 const 5\n %3 i64 mul %1, %2\n %4 i64 expr [j]\n"
     "%5 bool eq %3, %4\n %6 f32 cast %5\n %7 f32 store p1[i*M + j] %6\n"
     "%8 i64 const 4294967296\n %9 i64 mul %1, %8\n %10 i64 expr [j + i]\n"
     "%11 bool eq %10, %9\n %12 f32 cast %11\n %13 f32 store p2[i*M + j] %12\n end\n",
     0},
    {"row_of_sums",
     "kernel rowsums per i=N ~j=M ~k=4\n"
     "param 0 f32[N*4]\n param 1 f32[M*4]\n param 2 f32[N*M] written\n"
     "%1 f32 load p0[i*4 + k]\n %2 f32 load p1[j*4 + k]\n %3 f32 mul %1, %2\n"
     "%4 f32 reduce sum k %3\n %5 f32 reduce max j %4\n %6 f32 sub %4, %5\n %7 f32 exp %6\n"
     "%8 f32 reduce sum j %7\n %9 f32 div %7, %8\n %10 f32 store p2[i*M + j] %9\n end\n",
     4e-6},
    {"f64_norm",
     "kernel f64norm per i=N ~j=M\n"
     "param 0 f64[N*M]\n param 1 f64[N*M] written\n"
     "%1 f64 load p0[i*M + j]\n %2 f64 mul %1, %1\n %3 f64 reduce sum j %2\n"
     "%4 f64 sqrt %3\n %5 f64 div %1, %4\n %6 f64 tanh %5\n %7 f64 log %4\n"
     "%8 f64 add %6, %7\n %9 f64 store p1[i*M + j] %8\n end\n",
     1e-14},
    {"total",
     "kernel total red ~i=N ~j=M\n"
     "param 0 f32[N*M]\n param 1 f32[1] written\n"
     "%1 f32 load p0[i*M + j]\n %2 f32 abs %1\n %3 f32 reduce sum i,j %2\n"
     "%4 f32 store p1[0] %3\n end\n",
     4e-6},
    {"dot_bias",
     "kernel dotb tem dot m=N n=70 ~k=33\n"
     "param 0 f32[N*33]\n param 1 f32[33*70]\n param 2 f32[70]\n param 3 f32[N*70] written\n"
     "%1 f32 load p0[m*33 + k]\n %2 f32 load p1[k*70 + n]\n %3 f32 mul %1, %2\n"
     "%4 f32 reduce sum k %3\n %5 f32 load p2[n]\n %6 f32 add %4, %5\n %7 f32 const 0\n"
     "%8 f32 max %6, %7\n %9 f32 store p3[m*70 + n] %8\n"
     "dot batch - m m n n k k pack 0 a %1 acc %4 b %2\n end\n",
     4e-6},
    {"dot_batch",
     "kernel dotbt tem dot b=3 h=2 m=N n=M ~k=32\n"
     "param 0 f32[3*N*64]\n param 1 f32[3*M*64]\n param 2 f32[6*N*M] written\n"
     "%1 f32 load p0[(b*N + m)*64 + h*32 + k]\n %2 f32 load p1[(b*M + n)*64 + h*32 + k]\n"
     "%3 f32 mul %1, %2\n %4 f32 reduce sum k %3\n"
     "%5 f32 store p2[((b*2 + h)*N + m)*M + n] %4\n"
     "dot batch b,h m m n n k k pack 0 a %1 acc %4 b %2\n end\n",
     4e-6},
    {"dot_gated",
     "kernel dotg tem dot m=N n=40 ~k=M\n"
     "param 0 f16[N*M]\n param 1 f32[M*40]\n param 2 f32[M*40]\n param 3 f16[N*40] written\n"
     "%1 f16 load p0[m*M + k]\n %2 f32 cast %1\n %3 f32 load p1[k*40 + n]\n"
     "%4 f32 load p2[k*40 + n]\n %5 f32 mul %2, %3\n %6 f32 mul %2, %4\n"
     "%7 f32 reduce sum k %5\n %8 f32 reduce sum k %6\n %9 f32 sigmoid %7\n"
     "%10 f32 mul %7, %9\n %11 f32 mul %10, %8\n %12 f16 cast %11\n"
     "%13 f16 store p3[m*40 + n] %12\n"
     "dot batch - m m n n k k pack 0 a %2 acc %7 b %3 acc %8 b %4\n end\n",
     1e-3},
    {"row_short",
     "kernel row_short tem dot n=N ~k=52\n"
     "param 0 f32[52]\n param 1 f32[52*N]\n param 2 f32[N]\n param 3 f32[N] written\n"
     "%1 f32 load p0[k]\n %2 f32 load p1[n*52 + k]\n %3 f32 mul %1, %2\n"
     "%4 f32 reduce sum k %3\n %5 f32 load p2[n]\n %6 f32 add %4, %5\n"
     "%7 f32 store p3[n] %6\n"
     "dot batch - m - n n k k pack 0 a %1 acc %4 b %2\n end\n",
     4e-6},
    {"row_long",
     "kernel row_long tem dot n=N ~k=4100\n"
     "param 0 f32[4100]\n param 1 f32[4100*N]\n param 2 f32[N]\n param 3 f32[N] written\n"
     "%1 f32 load p0[k]\n %2 f32 load p1[n*4100 + k]\n %3 f32 mul %1, %2\n"
     "%4 f32 reduce sum k %3\n %5 f32 load p2[n]\n %6 f32 add %4, %5\n"
     "%7 f32 store p3[n] %6\n"
     "dot batch - m - n n k k pack 0 a %1 acc %4 b %2\n end\n",
     4e-6},
    {"conv",
     "kernel conv tem dot b=2 h=5 w=N n=24 ~r=3 ~s=3 ~c=7\n"
     "param 0 f32[70*N]\n param 1 f32[9*7*24]\n param 2 f32[240*N] written\n"
     "%1 f32 load p0[((b*5 + h + r - 1)*N + w + s - 1)*7 + c] if "
     "[(0 < h + r)*(h + r < 6)*(0 < w + s)*(w + s < N + 1)]\n"
     "%2 f32 load p1[((r*3 + s)*7 + c)*24 + n]\n %3 f32 mul %1, %2\n"
     "%4 f32 reduce sum r,s,c %3\n %5 f32 store p2[((b*5 + h)*N + w)*24 + n] %4\n"
     "dot batch - m b,h,w n n k r,s,c pack 0 a %1 acc %4 b %2\n end\n",
     4e-6},
    {"dot_i32",
     "kernel doti tem dot m=N n=M ~k=21\n"
     "param 0 i8[N*21]\n param 1 u8[21*M]\n param 2 i32[N*M] written\n"
     "%1 i8 load p0[m*21 + k]\n %2 i32 cast %1\n %3 u8 load p1[k*M + n]\n %4 i32 cast %3\n"
     "%5 i32 mul %2, %4\n %6 i32 reduce sum k %5\n %7 i32 store p2[m*M + n] %6\n"
     "dot batch - m m n n k k pack 0 a %2 acc %6 b %4\n end\n",
     0},
    {"attention",
     "kernel attn tem attention b=2 h=2 i=N ~j=M ~d=32 dv=32\n"
     "param 0 f32[128*N]\n param 1 f32[128*M]\n param 2 f32[128*M]\n"
     "param 3 f32[128*N] written\n param 4 f32[2*M]\n"
     "%1 f32 load p0[(b*N + i)*64 + h*32 + d]\n %2 f32 load p1[(b*M + j)*64 + h*32 + d]\n"
     "%3 f32 mul %1, %2\n %4 f32 reduce sum d %3\n %5 f32 const 0.17\n %6 f32 mul %4, %5\n"
     "%7 f32 load p4[b*M + j]\n %8 f32 add %6, %7\n %9 f32 reduce max j %8\n"
     "%10 f32 sub %8, %9\n %11 f32 exp %10\n %12 f32 reduce sum j %11\n"
     "%13 f32 div %11, %12\n %14 f32 load p2[(b*M + j)*64 + h*32 + dv]\n"
     "%15 f32 mul %13, %14\n %16 f32 reduce sum j %15\n"
     "%17 f32 store p3[(b*N + i)*64 + h*32 + dv] %16\n"
     "attention batch b,h i i j j d d dv dv q %1 k %2 s %4 score %8 m %9 e %11 l %12 v %14 "
     "o %16\n end\n",
     4e-6},
    {"causal",
     "kernel causal tem attention b=3 i=N ~j=N ~d=64 dv=64\n"
     "param 0 f32[192*N]\n param 1 f32[192*N]\n param 2 f32[192*N]\n"
     "param 3 f32[192*N] written\n"
     "%1 f32 load p0[(b*N + i)*64 + d]\n %2 f32 load p1[(b*N + j)*64 + d]\n"
     "%3 f32 mul %1, %2\n %4 f32 reduce sum d %3\n %5 f32 const 0.125\n %6 f32 mul %4, %5\n"
     "%7 i64 expr [i < j]\n %8 bool cast %7\n %9 f32 const -inf\n"
     "%10 f32 select %8, %9, %6\n %11 f32 reduce max j %10\n %12 f32 sub %10, %11\n"
     "%13 f32 exp %12\n %14 f32 reduce sum j %13\n %15 f32 div %13, %14\n"
     "%16 f32 load p2[(b*N + j)*64 + dv]\n %17 f32 mul %15, %16\n %18 f32 reduce sum j %17\n"
     "%19 f32 store p3[(b*N + i)*64 + dv] %18\n"
     "attention batch b i i j j d d dv dv q %1 k %2 s %4 score %10 m %11 e %13 l %14 v %16 "
     "o %18 causal [0]\n end\n",
     4e-6},
    {"behind_the_row", /* vectors of two registers, the second of which is off for good */
     "kernel pad poi i=4 j=13\n param 0 i64[36]\n param 1 i64[52] written\n"
     "%1 i64 load p0[i*12 + j] if [(i < 3)*(j < 12)]\n %2 i64 store p1[i*13 + j] %1\n end\n",
     0},
    {"behind_the_row_f64",
     "kernel pad poi i=4 j=13\n param 0 f64[36]\n param 1 f64[52] written\n"
     "%1 f64 load p0[i*12 + j] if [(i < 3)*(j < 12)]\n %2 f64 store p1[i*13 + j] %1\n end\n",
     0},
    {"three_of_four", /* quotients, in vectors that rows do not fill */
     "kernel k per a=2 ~x=3 ~y=8 ~z=3\n param 0 f32[6]\n param 1 f32[6]\n"
     "param 2 f32[144]\n param 3 f32[24]\n param 4 f32[144] written\n"
     "%1 f32 load p0[a*3 + z]\n %2 f32 load p1[a*3 + z]\n"
     "%3 f32 load p2[a*3 + z*48 + (x*8 + y)/3*6 + (x*8 + y) % 3]\n"
     "%4 f32 load p3[z*8 + (x*8 + y)/3]\n %5 f32 div %3, %4\n %6 f32 reduce sum x,y,z %5\n"
     "%7 f32 const 72\n %8 f32 div %6, %7\n %9 f32 sub %5, %8\n %10 f32 mul %9, %9\n"
     "%11 f32 reduce sum x,y,z %10\n %12 f32 div %11, %7\n %13 f32 const 0.01\n"
     "%14 f32 add %12, %13\n %15 f32 rsqrt %14\n"
     "%16 f32 load p2[x*48 + y*6 + a*3 + z]\n %17 f32 load p3[x*8 + y]\n %18 f32 div %16, %17\n"
     "%19 f32 sub %18, %8\n %20 f32 mul %15, %19\n %21 f32 mul %2, %20\n %22 f32 add %1, %21\n"
     "%23 f32 store p4[x*8 + y + a*72 + z*24] %22\n"
     "cost reads [720] writes [576] flops [5216]\n end\n",
     1e-4},
};

#endif
