"""The locales that ICU has data of, as CLDR 47 lists them, with the names that older systems use (iw, in, zh_TW).

ICU keeps a few kilobytes for every name of a locale that it ever met, for good. So it meets only these.
"""

from __future__ import annotations

from functools import lru_cache

_REGIONS = """
aa:DJ,ER,ET ab:GE af:NA,ZA agq:CM ak:GH am:ET an:ES ann:NG apc:SY
ar:001,AE,BH,DJ,DZ,EG,EH,ER,IL,IQ,JO,KM,KW,LB,LY,MA,MR,OM,PS,QA,SA,SD,SO,SS,SY,TD,TN,YE arn:CL as:IN asa:TZ ast:ES
az:AZ,Arab,Arab_IQ,Arab_IR,Arab_TR,Cyrl,Cyrl_AZ,IQ,IR,Latn,Latn_AZ,TR ba:RU bal:Arab,Arab_PK,Latn,Latn_PK,PK bas:CM
be:BY bem:ZM bew:ID bez:TZ bg:BG bgc:IN bgn:AE,AF,IR,OM,PK bho:IN blo:BJ blt:VN bm:ML,Nkoo,Nkoo_ML bn:BD,IN bo:CN,IN
br:FR brx:IN bs:BA,Cyrl,Cyrl_BA,Latn,Latn_BA bss:CM byn:ER ca:AD,ES,FR,IT cad:US cch:NG ccp:BD,IN ce:RU ceb:PH cgg:UG
cho:US chr:US cic:US ckb:IQ,IR co:FR cop:EG cs:CZ csw:CA cu:RU cv:RU cy:GB da:DK,GL dav:KE de:AT,BE,CH,DE,IT,LI,LU
dje:NE doi:IN dsb:DE dua:CM dv:MV dyo:SN dz:BT ebu:KE ee:GH,TG el:CY,GR
en:001,150,AE,AG,AI,AS,AT,AU,BB,BE,BI,BM,BS,BW,BZ,CA,CC,CH,CK,CM,CX,CY,CZ,DE,DG,DK,DM,Dsrt,Dsrt_US,ER,ES,FI,FJ,FK,FM,
FR,GB,GD,GG,GH,GI,GM,GS,GU,GY,HK,HU,ID,IE,IL,IM,IN,IO,IT,JE,JM,KE,KI,KN,KY,LC,LR,LS,MG,MH,MO,MP,MS,MT,MU,MV,MW,MY,NA,
NF,NG,NL,NO,NR,NU,NZ,PG,PH,PK,PL,PN,PR,PT,PW,RO,RW,SB,SC,SD,SE,SG,SH,SI,SK,SL,SS,SX,SZ,Shaw,Shaw_GB,TC,TK,TO,TT,TV,TZ,
UG,UM,US,VC,VG,VI,VU,WS,ZA,ZM,ZW
eo:001 es:419,AR,BO,BR,BZ,CL,CO,CR,CU,DO,EA,EC,ES,GQ,GT,HN,IC,MX,NI,PA,PE,PH,PR,PY,SV,US,UY,VE et:EE eu:ES ewo:CM
fa:AF,IR
ff:Adlm,Adlm_BF,Adlm_CM,Adlm_GH,Adlm_GM,Adlm_GN,Adlm_GW,Adlm_LR,Adlm_MR,Adlm_NE,Adlm_NG,Adlm_SL,Adlm_SN,BF,CM,GH,GM,
GN,GW,LR,Latn,Latn_BF,Latn_CM,Latn_GH,Latn_GM,Latn_GN,Latn_GW,Latn_LR,Latn_MR,Latn_NE,Latn_NG,Latn_SL,Latn_SN,MR,NE,
NG,SL,SN
fi:FI fil:PH fo:DK,FO
fr:BE,BF,BI,BJ,BL,CA,CD,CF,CG,CH,CI,CM,DJ,DZ,FR,GA,GF,GN,GP,GQ,HT,KM,LU,MA,MC,MF,MG,ML,MQ,MR,MU,NC,NE,PF,PM,RE,RW,SC,
SN,SY,TD,TG,TN,VU,WF,YT
frr:DE fur:IT fy:NL ga:GB,IE gaa:GH gd:GB gez:ER,ET gl:ES gn:PY gsw:CH,FR,LI gu:IN guz:KE gv:IM
ha:Arab,Arab_NG,Arab_SD,GH,NE,NG,SD haw:US he:IL hi:IN,Latn,Latn_IN hnj:Hmnp,Hmnp_US,US hr:BA,HR hsb:DE ht:HT hu:HU
hy:AM ia:001 id:ID ie:EE ig:NG ii:CN in:ID io:001 is:IS it:CH,IT,SM,VA iu:CA,Latn,Latn_CA iw:IL ja:JP jbo:001 jgo:CM
ji jmc:TZ jv:ID ka:GE kaa:Cyrl,Cyrl_UZ,Latn,Latn_UZ,UZ kab:DZ kaj:NG kam:KE kcg:NG kde:TZ kea:CV ken:CM kgp:BR khq:ML
ki:KE kk:Arab,Arab_CN,CN,Cyrl,Cyrl_KZ,KZ kkj:CM kl:GL kln:KE km:KH kn:IN ko:CN,KP,KR kok:Deva,Deva_IN,IN,Latn,Latn_IN
kpe:GN,LR ks:Arab,Arab_IN,Deva,Deva_IN,IN ksb:TZ ksf:CM ksh:DE ku:TR kw:GB
kxv:Deva,Deva_IN,IN,Latn,Latn_IN,Orya,Orya_IN,Telu,Telu_IN ky:KG la:VA lag:TZ lb:LU lg:UG lij:IT lkt:US lld:IT lmo:IT
ln:AO,CD,CF,CG lo:LA lrc:IQ,IR lt:LT ltg:LV lu:CD luo:KE luy:KE lv:LV mai:IN mas:KE,TZ mdf:RU mer:KE mfe:MU mg:MG
mgh:MZ mgo:CM mhn:IT mi:NZ mic:CA mk:MK ml:IN mn:CN,MN,Mong,Mong_CN,Mong_MN mni:Beng,Beng_IN,IN,Mtei,Mtei_IN mo:MD
moh:CA mr:IN ms:Arab,Arab_BN,Arab_MY,BN,ID,MY,SG mt:MT mua:CM mus:US my:MM myv:RU mzn:IR naq:NA nb:NO,SJ nd:ZW
nds:DE,NL ne:IN,NP nl:AW,BE,BQ,CW,NL,SR,SX nmg:CM nn:NO nnh:CM no:NO nqo:GN nr:ZA nso:ZA nus:SS nv:US ny:MW nyn:UG
oc:ES,FR om:ET,KE or:IN os:GE,RU osa:US pa:Arab,Arab_PK,Guru,Guru_IN,IN,PK pap:AW,CW pcm:NG pis:SB pl:PL prg:PL
ps:AF,PK pt:AO,BR,CH,CV,GQ,GW,LU,MO,MZ,PT,ST,TL qu:BO,EC,PE quc:GT raj:IN rhg:BD,MM,Rohg,Rohg_BD,Rohg_MM rif:MA rm:CH
rn:BI ro:MD,RO rof:TZ ru:BY,KG,KZ,MD,RU,UA rw:RW rwk:TZ sa:IN sah:RU saq:KE sat:Deva,Deva_IN,IN,Olck,Olck_IN sbp:TZ
sc:IT scn:IT sd:Arab,Arab_PK,Deva,Deva_IN,IN,PK sdh:IQ,IR se:FI,NO,SE seh:MZ ses:ML sg:CF sh:BA
shi:Latn,Latn_MA,MA,Tfng,Tfng_MA shn:MM,TH si:LK sid:ET sk:SK skr:PK sl:SI sma:NO,SE smj:NO,SE smn:FI sms:FI sn:ZW
so:DJ,ET,KE,SO sq:AL,MK,XK sr:BA,Cyrl,Cyrl_BA,Cyrl_ME,Cyrl_RS,Cyrl_XK,Latn,Latn_BA,Latn_ME,Latn_RS,Latn_XK,ME,RS,XK
ss:SZ,ZA ssy:ER st:LS,ZA su:ID,Latn,Latn_ID sv:AX,FI,SE sw:CD,KE,TZ,UG syr:IQ,SY szl:PL ta:IN,LK,MY,SG te:IN teo:KE,UG
tg:TJ th:TH ti:ER,ET tig:ER tk:TM tl:PH tn:BW,ZA to:TO tok:001 tpi:PG tr:CY,TR trv:TW trw:PK ts:ZA tt:RU twq:NE tyv:RU
tzm:MA ug:CN uk:UA ur:IN,PK uz:AF,Arab,Arab_AF,Cyrl,Cyrl_UZ,Latn,Latn_UZ,UZ vai:LR,Latn,Latn_LR,Vaii,Vaii_LR ve:ZA
vec:IT vi:VN vmw:MZ vo:001 vun:TZ wa:BE wae:CH wal:ET wbp:AU wo:SN xh:ZA xnr:IN xog:UG yav:CM yi:UA yo:BJ,NG
yrl:BR,CO,VE yue:CN,HK,Hans,Hans_CN,Hant,Hant_CN,Hant_HK,Hant_MO,MO za:CN zgh:MA
zh:CN,HK,Hans,Hans_CN,Hans_HK,Hans_MO,Hans_MY,Hans_SG,Hant,Hant_HK,Hant_MO,Hant_MY,Hant_TW,Latn,Latn_CN,MO,MY,SG,TW
zu:ZA
"""


def _names() -> frozenset[str]:
    languages = (each.partition(":") for each in _REGIONS.replace(",\n", ",").split())
    return frozenset(
        f"{language}_{rest}" if rest else language
        for language, _, given in languages
        for rest in ("", *filter(None, given.split(",")))
    )


ICU_LOCALES = _names()
ROOT = "und"
_SCRIPT = len("Hant")


@lru_cache(maxsize=1_000)
def icu_locale(locale: str) -> str:
    """Return the nearest locale that ICU has: es-CL is es_CL, en-AA is en, and an unknown language is the root's."""
    parts = locale.replace("-", "_").split("_")
    language, rest = parts[0].lower(), [each.title() if len(each) == _SCRIPT else each.upper() for each in parts[1:]]
    wished = ("_".join([language, *rest[:length]]) for length in range(len(rest), -1, -1))
    return next((name for name in wished if name in ICU_LOCALES), ROOT)
